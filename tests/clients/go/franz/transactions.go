package main

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"flintmq/tests/clients/scenario"
)

// transactional is a producer whose id is the topic's name.
func transactional(t scenario.T, options ...kgo.Opt) *kgo.Client {
	return client(t, append(options, kgo.TransactionalID(t.Topic))...)
}

func value(t scenario.T, text string) *kgo.Record {
	return &kgo.Record{Topic: t.Topic, Value: []byte(text)}
}

// inTransaction writes values and ends with a commit or an abort.
func inTransaction(t scenario.T, producer *kgo.Client, end kgo.TransactionEndTry, values ...string) {
	t.Must(producer.BeginTransaction())
	for _, one := range values {
		t.Must(producer.ProduceSync(t, value(t, one)).FirstErr())
	}
	t.Must(producer.EndTransaction(t, end))
}

func expectValues(t scenario.T, isolation kgo.IsolationLevel, wanted ...string) {
	reader := consumer(t, 0, kgo.FetchIsolationLevel(isolation))
	defer reader.Close()
	found := []string{}
	for _, one := range poll(t, reader, len(wanted)) {
		found = append(found, string(one.Value))
	}
	t.Equal(found, wanted)
}

// transactions shows committed and aborted ones to readers of both kinds.
func transactions(t scenario.T) {
	producer := transactional(t)
	defer producer.Close()
	committed, all := []string{}, []string{}
	for round := range 10 {
		values := []string{fmt.Sprint(round, "a"), fmt.Sprint(round, "b")}
		end := kgo.TransactionEndTry(round%3 != 1)
		inTransaction(t, producer, end, values...)
		all = append(all, values...)
		if end == kgo.TryCommit {
			committed = append(committed, values...)
		}
	}
	expectValues(t, kgo.ReadCommitted(), committed...)
	expectValues(t, kgo.ReadUncommitted(), all...)
}

// transactionFenced lets a second producer take the id: what the first has open is aborted.
func transactionFenced(t scenario.T) {
	first, second := transactional(t), transactional(t)
	defer first.Close()
	defer second.Close()
	t.Must(first.BeginTransaction())
	t.Must(first.ProduceSync(t, value(t, "of the first")).FirstErr())
	inTransaction(t, second, kgo.TryCommit, "of the second")
	err := first.EndTransaction(t, kgo.TryCommit)
	t.Error(err, kerr.ProducerFenced)
	expectValues(t, kgo.ReadCommitted(), "of the second")
}

// transactionOffsets reads, processes and writes in one transaction, as a member of a group (KIP-447).
func transactionOffsets(t scenario.T) {
	output := t
	output.Topic = t.Topic + "-out"
	_, err := admin(t).CreateTopics(t, 1, 1, nil, t.Topic, output.Topic)
	t.Must(err)
	source := client(t)
	defer source.Close()
	for i := range 50 {
		t.Must(source.ProduceSync(t, value(t, fmt.Sprint(i))).FirstErr())
	}
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(t.Address),
		kgo.TransactionalID(t.Topic),
		kgo.ConsumerGroup(t.Topic),
		kgo.ConsumeTopics(t.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequireStableFetchOffsets(),
	)
	t.Must(err)
	defer session.Close()
	wanted := []string{}
	for len(wanted) < 50 {
		fetches := session.PollRecords(t, 7)
		t.Must(fetches.Err())
		t.Must(session.Begin())
		for _, one := range fetches.Records() {
			t.Must(session.ProduceSync(t, value(output, string(one.Value))).FirstErr())
			wanted = append(wanted, string(one.Value))
		}
		committed, err := session.End(t, kgo.TryCommit)
		t.Must(err)
		t.Equal(committed, true)
	}
	expectValues(output, kgo.ReadCommitted(), wanted...)
	offsets, err := admin(t).FetchOffsets(t, t.Topic)
	t.Must(err)
	at, found := offsets.Lookup(t.Topic, 0)
	t.Equal(found, true)
	t.Equal(at.At, int64(50))
}

func transactionAdmin(t scenario.T) {
	producer := transactional(t)
	defer producer.Close()
	t.Must(producer.BeginTransaction())
	t.Must(producer.ProduceSync(t, value(t, "open")).FirstErr())
	admins := admin(t)
	described, err := admins.DescribeTransactions(t, t.Topic)
	t.Must(err)
	one := described[t.Topic]
	t.Must(one.Err)
	t.Equal(one.State, "Ongoing")
	t.Equal(one.Topics.Lookup(t.Topic, 0), true)
	listed, err := admins.ListTransactions(t, []int64{one.ProducerID}, []string{"Ongoing"})
	t.Must(err)
	t.Equal(listed.TransactionalIDs(), []string{t.Topic})
	states, err := admins.DescribeProducers(t, kadm.TopicsSet{t.Topic: {0: {}}})
	t.Must(err)
	for _, state := range states[t.Topic].Partitions[0].ActiveProducers {
		t.Equal([2]int64{state.ProducerID, state.CurrentTxnStartOffset}, [2]int64{one.ProducerID, 0})
	}
	t.Must(producer.EndTransaction(t, kgo.TryCommit))
	described, err = admins.DescribeTransactions(t, t.Topic)
	t.Must(err)
	t.Equal(described[t.Topic].State, "CompleteCommit")
}

// transactionVersions shows that partitions are added by the requests that write to them (KIP-890), once the client
// has heard from a broker that this is so.
func transactionVersions(t scenario.T) {
	seen := &sent{requests: map[string]bool{}}
	producer := transactional(t, kgo.WithLogger(seen))
	defer producer.Close()
	inTransaction(t, producer, kgo.TryCommit, "one")
	inTransaction(t, producer, kgo.TryAbort, "two")
	seen.forget()
	inTransaction(t, producer, kgo.TryCommit, "three")
	inTransaction(t, producer, kgo.TryAbort, "four")
	t.Equal(seen.requests, map[string]bool{"Produce v13": true, "EndTxn v5": true})
	expectValues(t, kgo.ReadCommitted(), "one", "three")
}
