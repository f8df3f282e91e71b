package main

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"flintmq/tests/clients/scenario"
)

const fetchKey = 1

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func record(topic string, i int) *kgo.Record {
	sample := scenario.Sample(i)
	made := &kgo.Record{Topic: topic, Key: sample.Key, Value: sample.Value, Timestamp: time.UnixMilli(sample.TimeMs)}
	for _, header := range sample.Headers {
		made.Headers = append(made.Headers, kgo.RecordHeader{Key: header.Key, Value: []byte(header.Value)})
	}
	return made
}

// write writes the sample, by an idempotent producer, and checks the offsets that it is told.
func write(t scenario.T) {
	options := []kgo.Opt{}
	if t.Option != "" {
		options = append(options, kgo.ProducerBatchCompression(codecs[t.Option]))
	}
	writeWith(t, options...)
}

func writeWith(t scenario.T, options ...kgo.Opt) {
	producer := client(t, options...)
	defer producer.Close()
	records := []*kgo.Record{}
	for i := range scenario.SampleCount {
		records = append(records, record(t.Topic, i))
	}
	t.Must(producer.ProduceSync(t, records...).FirstErr())
	for i, one := range records {
		t.Equal(one.Offset, int64(i))
	}
}

func expectSample(t scenario.T, first int, options ...kgo.Opt) {
	reader := consumer(t, int64(first), options...)
	defer reader.Close()
	found := poll(t, reader, scenario.SampleCount-first)
	t.Equal(len(found), scenario.SampleCount-first)
	for i, one := range found {
		wanted := record(t.Topic, first+i)
		t.Equal(one.Offset, int64(first+i))
		t.Equal(one.Timestamp.UnixMilli(), wanted.Timestamp.UnixMilli())
		t.Equal([2]bool{one.Key == nil, one.Value == nil}, [2]bool{wanted.Key == nil, wanted.Value == nil})
		t.Equal([2]string{string(one.Key), string(one.Value)}, [2]string{string(wanted.Key), string(wanted.Value)})
		t.Equal(one.Headers, wanted.Headers)
	}
}

func poll(t scenario.T, reader *kgo.Client, count int) []*kgo.Record {
	found := []*kgo.Record{}
	for len(found) < count {
		fetches := reader.PollFetches(t)
		t.Must(fetches.Err())
		found = append(found, fetches.Records()...)
	}
	return found
}

func readCommitted(t scenario.T) {
	write(t)
	expectSample(t, 0, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
}

func seek(t scenario.T) {
	writeWith(t, kgo.ProducerBatchMaxBytes(1024))
	for _, offset := range []int{0, 1, 37, scenario.SampleCount - 1} {
		expectSample(t, offset)
	}
	beyond := consumer(t, scenario.SampleCount+1, kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	defer beyond.Close()
	t.Error(beyond.PollFetches(t).Err(), kerr.OffsetOutOfRange)
}

func acks(t scenario.T) {
	topic := t.Topic
	for i, acks := range []kgo.Acks{kgo.NoAck(), kgo.LeaderAck(), kgo.AllISRAcks()} {
		t.Topic = fmt.Sprint(topic, i)
		producer := client(t, kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite(), kgo.ProducerLinger(0))
		defer producer.Close()
		for i := range scenario.SampleCount {
			producer.Produce(t, record(t.Topic, i), nil)
		}
		t.Must(producer.Flush(t))
		expectSample(t, 0)
	}
}

// manyPartitions reads six partitions in small fetches, so that fetch sessions go on for a while (KIP-227).
func manyPartitions(t scenario.T) {
	const count, each = 6, 2000
	_, err := admin(t).CreateTopic(t, count, 1, nil, t.Topic)
	t.Must(err)
	offsets := map[int32]kgo.Offset{}
	for i := range int32(count) {
		offsets[i] = kgo.NewOffset().AtStart()
	}
	both := client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t.Topic: offsets}),
		kgo.ProducerBatchMaxBytes(1024), kgo.FetchMaxPartitionBytes(4096))
	defer both.Close()
	records := []*kgo.Record{}
	for i := range count * each {
		value := fmt.Appendf(nil, "%d", i/count)
		records = append(records, &kgo.Record{Topic: t.Topic, Partition: int32(i % count), Value: value})
	}
	t.Must(both.ProduceSync(t, records...).FirstErr())
	seen := [count]int{}
	for _, one := range poll(t, both, count*each) {
		t.Equal(string(one.Value), fmt.Sprint(seen[one.Partition]))
		t.Equal(one.Offset, int64(seen[one.Partition]))
		seen[one.Partition]++
	}
	t.Equal(seen, [count]int{each, each, each, each, each, each})
}

// longPoll shows that a fetch that waits is answered when there is data, not when its time is over.
func longPoll(t scenario.T) {
	_, err := admin(t).CreateTopic(t, 1, 1, nil, t.Topic)
	t.Must(err)
	waiting := make(chan struct{}, 1)
	reader := consumer(t, 0, kgo.FetchMaxWait(scenario.Timeout), kgo.WithHooks(fetchSent(waiting)))
	defer reader.Close()
	<-waiting
	producer := client(t)
	defer producer.Close()
	start := time.Now()
	t.Must(producer.ProduceSync(t, record(t.Topic, 0)).FirstErr())
	t.Equal(len(poll(t, reader, 1)), 1)
	t.Equal(time.Since(start) < scenario.Timeout/2, true)
}

func tooLarge(t scenario.T) {
	producer := client(t, kgo.ProducerBatchMaxBytes(10_000_000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	defer producer.Close()
	large := &kgo.Record{Topic: t.Topic, Value: make([]byte, 2_000_000)}
	t.Error(producer.ProduceSync(t, large).FirstErr(), kerr.MessageTooLarge)
	fitting := &kgo.Record{Topic: t.Topic, Value: make([]byte, 1_000_000)}
	t.Must(producer.ProduceSync(t, fitting).FirstErr())
	t.Equal(fitting.Offset, int64(0))
}

func unknownTopic(t scenario.T) {
	// Without automatic creation: the metadata request says so.
	producer, err := kgo.NewClient(kgo.SeedBrokers(t.Address), kgo.UnknownTopicRetries(0))
	t.Must(err)
	defer producer.Close()
	t.Error(producer.ProduceSync(t, record(t.Topic, 0)).FirstErr(), kerr.UnknownTopicOrPartition)
}

// fetchSent tells once a fetch is on its way.
type fetchSent chan struct{}

// OnBrokerWrite implements kgo.HookBrokerWrite.
func (f fetchSent) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == fetchKey {
		select {
		case f <- struct{}{}:
		default:
		}
	}
}
