// The franz-go client against a broker. It speaks the newest versions of the protocol that it shares with it.
package main

import (
	"fmt"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"flintmq/tests/clients/scenario"
)

func main() {
	scenario.Serve(map[string]scenario.Scenario{
		"write":           write,
		"read":            func(t scenario.T) { expectSample(t, 0) },
		"read-committed":  readCommitted,
		"seek":            seek,
		"acks":            acks,
		"many-partitions": manyPartitions,
		"long-poll":       longPoll,
		"too-large":       tooLarge,
		"unknown-topic":   unknownTopic,
		"versions":        versions,
		"topics":          topics,
		"recreate":        recreate,
		"configs":         configs,
		"delete-records":  deleteRecords,
		"list-offsets":    listOffsets,
		"leader-epochs":   leaderEpochs,
		"cluster":         cluster,
		"log-dirs":        logDirs,
		"producers":       producers,
		"leaders":         leaders,

		"transactions":         transactions,
		"transaction-fenced":   transactionFenced,
		"transaction-offsets":  transactionOffsets,
		"transaction-admin":    transactionAdmin,
		"transaction-versions": transactionVersions,
	})
}

// client is closed by whoever asked for it.
func client(t scenario.T, options ...kgo.Opt) *kgo.Client {
	all := append(append([]kgo.Opt{
		kgo.SeedBrokers(t.Address),
		kgo.AllowAutoTopicCreation(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}, security(t)...), options...)
	made, err := kgo.NewClient(all...)
	t.Must(err)
	return made
}

// consumer reads partition 0 from an offset.
func consumer(t scenario.T, offset int64, options ...kgo.Opt) *kgo.Client {
	from := map[string]map[int32]kgo.Offset{t.Topic: {0: kgo.NewOffset().At(offset)}}
	return client(t, append(options, kgo.ConsumePartitions(from))...)
}

func admin(t scenario.T) *kadm.Client {
	return kadm.NewClient(client(t))
}

// sent remembers which requests a client has written, as "Produce v13".
type sent struct {
	mutex    sync.Mutex
	requests map[string]bool
}

func (s *sent) Level() kgo.LogLevel { return kgo.LogLevelDebug }

func (s *sent) Log(_ kgo.LogLevel, message string, _ ...any) {
	if request, found := strings.CutPrefix(message, "wrote "); found {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.requests[request] = true
	}
}

func (s *sent) forget() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.requests = map[string]bool{}
}

// versions shows that the scenarios here speak Kafka's newest versions, with topic ids in produce and fetch.
func versions(t scenario.T) {
	seen := &sent{requests: map[string]bool{}}
	both := consumer(t, 0, kgo.WithLogger(seen))
	defer both.Close()
	t.Must(both.ProduceSync(t, record(t.Topic, 0)).FirstErr())
	t.Must(both.PollFetches(t).Err())
	_, err := kadm.NewClient(both).ListEndOffsets(t, t.Topic)
	t.Must(err)
	for _, wanted := range []string{
		"ApiVersions v4", "Metadata v13", "InitProducerID v5", "Produce v13", "Fetch v18", "ListOffsets v11",
	} {
		if !seen.requests[wanted] {
			t.Must(fmt.Errorf("%s was not sent, but %v", wanted, seen.requests))
		}
	}
}
