// The kafka-go client of Segment against a broker. It speaks old versions of the protocol: Produce 7, Fetch 10 and
// below. It has neither idempotence nor, in the reader used here, a group.
package main

import (
	"errors"
	"time"

	"github.com/segmentio/kafka-go"

	"flintmq/tests/clients/scenario"
)

var codecs = map[string]kafka.Compression{
	"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

func main() {
	scenario.Serve(map[string]scenario.Scenario{
		"write":        write,
		"read":         func(t scenario.T) { expectSample(t, 0) },
		"seek":         seek,
		"too-large":    tooLarge,
		"topics":       topics,
		"configs":      configs,
		"list-offsets": listOffsets,
	})
}

// client has seen nothing of the cluster yet. An older one answers from metadata that it remembers.
func client(t scenario.T) *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(t.Address), Timeout: scenario.Timeout, Transport: &kafka.Transport{}}
}

func writer(t scenario.T) *kafka.Writer {
	return &kafka.Writer{
		Addr: kafka.TCP(t.Address), Topic: t.Topic, RequiredAcks: kafka.RequireAll, AllowAutoTopicCreation: true,
		BatchTimeout: 10 * time.Millisecond, BatchBytes: 10_000_000, Compression: codecs[t.Option], MaxAttempts: 3,
	}
}

func message(i int) kafka.Message {
	sample := scenario.Sample(i)
	made := kafka.Message{Key: sample.Key, Value: sample.Value, Time: time.UnixMilli(sample.TimeMs)}
	for _, header := range sample.Headers {
		made.Headers = append(made.Headers, kafka.Header{Key: header.Key, Value: []byte(header.Value)})
	}
	return made
}

func write(t scenario.T) {
	messages := []kafka.Message{}
	for i := range scenario.SampleCount {
		messages = append(messages, message(i))
	}
	to := writer(t)
	t.Must(to.WriteMessages(t, messages...))
	t.Must(to.Close())
}

func expectSample(t scenario.T, first int) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{t.Address}, Topic: t.Topic, MaxWait: 100 * time.Millisecond,
	})
	defer reader.Close()
	t.Must(reader.SetOffset(int64(first)))
	for i := first; i < scenario.SampleCount; i++ {
		found, err := reader.ReadMessage(t)
		t.Must(err)
		wanted := message(i)
		t.Equal(found.Offset, int64(i))
		t.Equal(found.Time.UnixMilli(), wanted.Time.UnixMilli())
		// This client reads null as empty.
		t.Equal([2]string{string(found.Key), string(found.Value)}, [2]string{string(wanted.Key), string(wanted.Value)})
		t.Equal(len(found.Headers), len(wanted.Headers))
		for at, header := range found.Headers {
			t.Equal([2]string{header.Key, string(header.Value)},
				[2]string{wanted.Headers[at].Key, string(wanted.Headers[at].Value)})
		}
	}
}

func seek(t scenario.T) {
	write(t)
	for _, offset := range []int{0, 1, 37, scenario.SampleCount - 1} {
		expectSample(t, offset)
	}
}

func tooLarge(t scenario.T) {
	to := writer(t)
	defer to.Close()
	err := to.WriteMessages(t, kafka.Message{Value: make([]byte, 2_000_000)})
	var each kafka.WriteErrors
	if errors.As(err, &each) {
		err = each[0]
	}
	t.Error(err, kafka.MessageSizeTooLarge)
	t.Must(to.WriteMessages(t, kafka.Message{Value: make([]byte, 1_000_000)}))
}

func topics(t scenario.T) {
	cl := client(t)
	create := func() error {
		created, err := cl.CreateTopics(t, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
			Topic: t.Topic, NumPartitions: 2, ReplicationFactor: 1,
		}}})
		t.Must(err)
		return created.Errors[t.Topic]
	}
	t.Must(create())
	t.Error(create(), kafka.TopicAlreadyExists)
	grown, err := cl.CreatePartitions(t, &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: t.Topic, Count: 5}},
	})
	t.Must(err)
	t.Must(grown.Errors[t.Topic])
	described, err := client(t).Metadata(t, &kafka.MetadataRequest{Topics: []string{t.Topic}})
	t.Must(err)
	t.Equal(len(described.Topics[0].Partitions), 5)
	remove := func() error {
		deleted, err := cl.DeleteTopics(t, &kafka.DeleteTopicsRequest{Topics: []string{t.Topic}})
		t.Must(err)
		return deleted.Errors[t.Topic]
	}
	t.Must(remove())
	t.Error(remove(), kafka.UnknownTopicOrPartition)
}

func configs(t scenario.T) {
	write(t)
	cl := client(t)
	altered, err := cl.IncrementalAlterConfigs(t, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: t.Topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{{
				Name: "retention.ms", Value: "1000", ConfigOperation: kafka.ConfigOperationSet,
			}},
		}},
	})
	t.Must(err)
	t.Must(altered.Resources[0].Error)
	described, err := cl.DescribeConfigs(t, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: t.Topic, ConfigNames: []string{"retention.ms"},
		}},
	})
	t.Must(err)
	t.Equal(len(described.Resources[0].ConfigEntries), 1)
	t.Equal(described.Resources[0].ConfigEntries[0].ConfigValue, "1000")
}

func listOffsets(t scenario.T) {
	write(t)
	at := time.UnixMilli(scenario.SampleTime + 495)
	listed, err := client(t).ListOffsets(t, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{
		t.Topic: {kafka.FirstOffsetOf(0), kafka.LastOffsetOf(0), kafka.TimeOffsetOf(0, at)},
	}})
	t.Must(err)
	found := listed.Topics[t.Topic][0]
	t.Must(found.Error)
	t.Equal(found.FirstOffset, int64(0))
	t.Equal(found.LastOffset, int64(scenario.SampleCount))
	_, present := found.Offsets[50]
	t.Equal(present, true)
}
