package main

import (
	"net"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"flintmq/tests/clients/scenario"
)

func topics(t scenario.T) {
	adm := admin(t)
	defer adm.Close()
	configs := map[string]*string{"retention.ms": kadm.StringPtr("1000")}
	_, err := adm.ValidateCreateTopics(t, 2, 1, configs, t.Topic)
	t.Must(err)
	listed, err := adm.ListTopics(t)
	t.Must(err)
	t.Equal(listed.Has(t.Topic), false)

	created, err := adm.CreateTopic(t, 2, 1, configs, t.Topic)
	t.Must(err)
	t.Equal(created.NumPartitions, int32(2))
	t.Equal(*created.Configs["retention.ms"].Value, "1000")
	_, err = adm.CreateTopic(t, 2, 1, nil, t.Topic)
	t.Error(err, kerr.TopicAlreadyExists)
	_, err = adm.CreateTopic(t, 1, 1, nil, "no/name")
	t.Error(err, kerr.InvalidTopicException)
	_, err = adm.CreateTopic(t, 1, 3, nil, t.Topic+"-3")
	t.Error(err, kerr.InvalidReplicationFactor)

	grown, err := adm.UpdatePartitions(t, 5, t.Topic)
	t.Must(err)
	t.Must(grown.Error())
	shrunk, err := adm.UpdatePartitions(t, 3, t.Topic)
	t.Must(err)
	t.Error(shrunk.Error(), kerr.InvalidPartitions)
	listed, err = adm.ListTopics(t, t.Topic)
	t.Must(err)
	t.Equal(listed[t.Topic].ID, created.ID)
	t.Equal(len(listed[t.Topic].Partitions), 5)
	for _, partition := range listed[t.Topic].Partitions {
		t.Equal(partition.Replicas, []int32{partition.Leader})
		t.Equal(partition.ISR, []int32{partition.Leader})
	}

	_, err = adm.DeleteTopic(t, t.Topic)
	t.Must(err)
	_, err = adm.DeleteTopic(t, t.Topic)
	t.Error(err, kerr.UnknownTopicOrPartition)
}

// recreate writes through one client while its topic is replaced by another of the same name (KIP-516).
func recreate(t scenario.T) {
	adm := admin(t)
	defer adm.Close()
	producer := client(t, kgo.ProduceRequestTimeout(scenario.Timeout))
	defer producer.Close()
	for range 2 {
		_, err := adm.CreateTopic(t, 1, 1, nil, t.Topic)
		t.Must(err)
		for i := range 2 {
			one := record(t.Topic, i)
			t.Must(producer.ProduceSync(t, one).FirstErr())
			t.Equal(one.Offset, int64(i))
		}
		_, err = adm.DeleteTopic(t, t.Topic)
		t.Must(err)
		// franz-go holds on to the topic it knows until it is told to forget it.
		producer.PurgeTopicsFromClient(t.Topic)
	}
}

func configs(t scenario.T) {
	adm := admin(t)
	defer adm.Close()
	_, err := adm.CreateTopic(t, 1, 1, nil, t.Topic)
	t.Must(err)
	alter := func(op kadm.IncrementalOp, name string, value *string) error {
		altered, err := adm.AlterTopicConfigs(t, []kadm.AlterConfig{{Op: op, Name: name, Value: value}}, t.Topic)
		t.Must(err)
		return altered[0].Err
	}
	value := func(name string) (string, kmsg.ConfigSource) {
		described, err := adm.DescribeTopicConfigs(t, t.Topic)
		t.Must(err)
		for _, config := range described[0].Configs {
			if config.Key == name {
				return config.MaybeValue(), config.Source
			}
		}
		return "", kmsg.ConfigSourceUnknown
	}
	t.Must(alter(kadm.SetConfig, "max.message.bytes", kadm.StringPtr("500")))
	t.Must(alter(kadm.AppendConfig, "cleanup.policy", kadm.StringPtr("compact")))
	size, source := value("max.message.bytes")
	t.Equal(size, "500")
	t.Equal(source, kmsg.ConfigSourceDynamicTopicConfig)
	policy, _ := value("cleanup.policy")
	t.Equal(policy, "delete,compact")
	t.Error(alter(kadm.SetConfig, "retention.ms", kadm.StringPtr("soon")), kerr.InvalidConfig)
	t.Must(alter(kadm.DeleteConfig, "max.message.bytes", nil))
	size, source = value("max.message.bytes")
	t.Equal(size, "1048588")
	t.Equal(source, kmsg.ConfigSourceDefaultConfig)

	// All of them at once, as the older API has it: what is not named goes back to its default.
	state := []kadm.AlterConfig{{Name: "retention.ms", Value: kadm.StringPtr("7")}}
	replaced, err := adm.AlterTopicConfigsState(t, state, t.Topic)
	t.Must(err)
	t.Must(replaced[0].Err)
	policy, _ = value("cleanup.policy")
	t.Equal(policy, "delete")
	resources, err := adm.ListConfigResources(t)
	t.Must(err)
	t.Must(resources.Err)
	t.Equal(slices.Contains(resources.Names(), t.Topic), true)
}

func deleteRecords(t scenario.T) {
	write(t)
	adm := admin(t)
	defer adm.Close()
	before := func(offset int64) kadm.Offsets {
		offsets := kadm.Offsets{}
		offsets.AddOffset(t.Topic, 0, offset, -1)
		return offsets
	}
	deleted, err := adm.DeleteRecords(t, before(40))
	t.Must(err)
	t.Equal(deleted[t.Topic][0].LowWatermark, int64(40))
	starts, err := adm.ListStartOffsets(t, t.Topic)
	t.Must(err)
	t.Equal(starts[t.Topic][0].Offset, int64(40))
	expectSample(t, 40)
	refused, err := adm.DeleteRecords(t, before(scenario.SampleCount+1))
	t.Must(err)
	t.Error(refused[t.Topic][0].Err, kerr.OffsetOutOfRange)
}

func listOffsets(t scenario.T) {
	write(t)
	adm := admin(t)
	defer adm.Close()
	offset := func(listed kadm.ListedOffsets, err error) int64 {
		t.Must(err)
		t.Must(listed.Error())
		return listed[t.Topic][0].Offset
	}
	t.Equal(offset(adm.ListStartOffsets(t, t.Topic)), int64(0))
	t.Equal(offset(adm.ListLocalLogStartOffsets(t, t.Topic)), int64(0))
	t.Equal(offset(adm.ListEndOffsets(t, t.Topic)), int64(scenario.SampleCount))
	t.Equal(offset(adm.ListCommittedOffsets(t, t.Topic)), int64(scenario.SampleCount))
	t.Equal(offset(adm.ListMaxTimestampOffsets(t, t.Topic)), int64(scenario.SampleCount-1))
	t.Equal(offset(adm.ListOffsetsAfterMilli(t, scenario.SampleTime+495, t.Topic)), int64(50))
	// Where there is none, franz-go asks for the end instead.
	t.Equal(offset(adm.ListOffsetsAfterMilli(t, scenario.SampleTime+9999, t.Topic)), int64(scenario.SampleCount))
}

func leaderEpochs(t scenario.T) {
	write(t)
	adm := admin(t)
	defer adm.Close()
	listed, err := adm.ListTopics(t, t.Topic)
	t.Must(err)
	epoch := listed[t.Topic].Partitions[0].LeaderEpoch
	asked := kadm.OffsetForLeaderEpochRequest{}
	asked.Add(t.Topic, 0, epoch)
	found, err := adm.OffsetForLeaderEpoch(t, asked)
	t.Must(err)
	t.Must(found[t.Topic][0].Err)
	t.Equal(found[t.Topic][0].LeaderEpoch, epoch)
	t.Equal(found[t.Topic][0].EndOffset, int64(scenario.SampleCount))
}

func cluster(t scenario.T) {
	cl := client(t)
	defer cl.Close()
	metadata, err := kadm.NewClient(cl).BrokerMetadata(t)
	t.Must(err)
	t.Equal(len(metadata.Brokers), 1)
	one := metadata.Brokers[0]
	t.Equal(net.JoinHostPort(one.Host, strconv.Itoa(int(one.Port))), t.Address)

	described, err := kmsg.NewPtrDescribeClusterRequest().RequestWith(t, cl)
	t.Must(err)
	t.Must(kerr.ErrorForCode(described.ErrorCode))
	t.Equal(described.ClusterID, metadata.Cluster)
	t.Equal(described.Brokers[0].NodeID, one.NodeID)

	wanted := kmsg.NewPtrDescribeQuorumRequest()
	wanted.Topics = []kmsg.DescribeQuorumRequestTopic{{
		Topic: "__cluster_metadata", Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{Partition: 0}},
	}}
	quorum, err := wanted.RequestWith(t, cl)
	t.Must(err)
	t.Must(kerr.ErrorForCode(quorum.Topics[0].Partitions[0].ErrorCode))
	t.Equal(quorum.Topics[0].Partitions[0].LeaderID, one.NodeID)
}

func logDirs(t scenario.T) {
	write(t)
	adm := admin(t)
	defer adm.Close()
	described, err := adm.DescribeAllLogDirs(t, nil)
	t.Must(err)
	found := 0
	described.Each(func(folder kadm.DescribedLogDir) {
		t.Must(folder.Err)
		partition, ok := folder.Topics.Lookup(t.Topic, 0)
		if ok && partition.Size > 0 && folder.TotalBytes >= folder.UsableBytes {
			found++
		}
	})
	t.Equal(found, 1)
}

func producers(t scenario.T) {
	write(t)
	adm := admin(t)
	defer adm.Close()
	asked := kadm.TopicsSet{}
	asked.Add(t.Topic, 0)
	described, err := adm.DescribeProducers(t, asked)
	t.Must(err)
	states := described.SortedProducers()
	t.Equal(len(states), 1)
	t.Equal(states[0].LastSequence, int32(scenario.SampleCount-1))
	t.Equal(states[0].CurrentTxnStartOffset, int64(-1))
}

func leaders(t scenario.T) {
	adm := admin(t)
	defer adm.Close()
	_, err := adm.CreateTopic(t, 1, 1, nil, t.Topic)
	t.Must(err)
	asked := kadm.TopicsSet{}
	asked.Add(t.Topic, 0)
	elected, err := adm.ElectLeaders(t, kadm.ElectPreferredReplica, asked)
	t.Must(err)
	t.Error(elected[t.Topic][0].Err, kerr.ElectionNotNeeded)
	moving, err := adm.ListPartitionReassignments(t, nil)
	t.Must(err)
	t.Equal(len(moving), 0)
}
