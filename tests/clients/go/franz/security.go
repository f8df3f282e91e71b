package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"flintmq/tests/clients/scenario"
)

// security is what the environment asks for: a CA to trust, a certificate to show, a user with a password.
func security(t scenario.T) []kgo.Opt {
	var options []kgo.Opt
	if ca := os.Getenv("CLIENT_CA"); ca != "" {
		pem, err := os.ReadFile(ca)
		t.Must(err)
		config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
		t.Equal(config.RootCAs.AppendCertsFromPEM(pem), true)
		if certificate := os.Getenv("CLIENT_CERTIFICATE"); certificate != "" {
			pair, err := tls.LoadX509KeyPair(certificate, os.Getenv("CLIENT_KEY"))
			t.Must(err)
			config.Certificates = []tls.Certificate{pair}
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	if user := os.Getenv("CLIENT_USER"); user != "" {
		login := scram.Auth{User: user, Pass: os.Getenv("CLIENT_PASSWORD")}
		options = append(options, kgo.SASL(login.AsSha512Mechanism()))
	}
	return options
}
