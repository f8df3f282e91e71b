import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.Reader;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Properties;
import java.util.OptionalLong;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConfigEntry.ConfigSource;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidRequestException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.NoReassignmentInProgressException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicIdException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Apache Kafka's own client against a broker, one scenario for each line of its input.
 *
 * The argument is the broker's address. A line is the name of a scenario, a topic that no other scenario uses
 * and, for some, an option. The answer is a line too: "ok", or "failed" and why. The scenarios "write" and
 * "read" deal in the records of {@link #sample}, which the programs of other languages know as well.
 */
public class KafkaClients {
    private static final int SAMPLE_COUNT = 100;
    private static final long SAMPLE_TIME = 1_700_000_000_000L;
    private static final Duration TIMEOUT = Duration.ofSeconds(30);

    private final String address;
    private final Admin admin;
    private final Transactions transactions;

    private KafkaClients(String address) {
        this.address = address;
        Map<String, Object> settings = new HashMap<>(security());
        settings.put("bootstrap.servers", address);
        this.admin = Admin.create(settings);
        this.transactions = new Transactions(address, admin);
    }

    /** Settings for every client, from the properties file that the environment names. */
    private static Map<String, Object> security() {
        Map<String, Object> settings = new HashMap<>();
        String path = System.getenv("CLIENT_PROPERTIES");
        if (path != null) {
            Properties properties = new Properties();
            try (Reader reader = Files.newBufferedReader(Path.of(path))) {
                properties.load(reader);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
            properties.forEach((name, value) -> settings.put((String) name, value));
        }
        return settings;
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, UTF_8);
        KafkaClients program = new KafkaClients(args[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            try {
                program.run(words[0], words[1], words.length > 2 ? words[2] : "");
                answers.println("ok");
            } catch (Exception | AssertionError error) {
                error.printStackTrace();
                answers.println("failed " + error.toString().replace('\n', ' '));
            }
        }
        program.admin.close();
    }

    private void run(String scenario, String topic, String option) throws Exception {
        switch (scenario) {
            case "write" -> write(topic, Map.of("compression.type", option));
            case "read" -> expectSample(read(topic, 0, SAMPLE_COUNT, Map.of()), 0);
            case "read-committed" -> readCommitted(topic);
            case "seek" -> seek(topic);
            case "times" -> times(topic);
            case "header-without-value" -> headerWithoutValue(topic);
            case "acks" -> acks(topic);
            case "many-partitions" -> manyPartitions(topic);
            case "long-poll" -> longPoll(topic);
            case "too-large" -> tooLarge(topic);
            case "topics" -> topics(topic);
            case "recreate" -> recreate(topic);
            case "configs" -> configs(topic);
            case "broker-configs" -> brokerConfigs();
            case "delete-records" -> deleteRecords(topic);
            case "list-offsets" -> listOffsets(topic);
            case "cluster" -> cluster();
            case "log-dirs" -> logDirs(topic);
            case "producers" -> producers(topic);
            case "leaders" -> leaders(topic);
            default -> transactions.run(scenario, topic);
        }
    }

    // ---- records

    private void write(String topic, Map<String, Object> options) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = producer(options)) {
            for (int i = 0; i < SAMPLE_COUNT; i++) {
                sent.add(producer.send(sample(topic, i)));
            }
        }
        for (int i = 0; i < SAMPLE_COUNT; i++) {
            RecordMetadata report = sent.get(i).get();
            expect("0 at " + i, report.partition() + " at " + report.offset());
        }
    }

    private void readCommitted(String topic) throws Exception {
        write(topic, Map.of());
        expectSample(read(topic, 0, SAMPLE_COUNT, Map.of("isolation.level", "read_committed")), 0);
    }

    private void seek(String topic) throws Exception {
        write(topic, Map.of("batch.size", 500));
        for (int offset : new int[] {0, 1, 37, SAMPLE_COUNT - 1}) {
            expectSample(read(topic, offset, SAMPLE_COUNT - offset, Map.of()), offset);
        }
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of())) {
            consumer.assign(List.of(partition));
            consumer.seekToEnd(List.of(partition));
            expect((long) SAMPLE_COUNT, consumer.position(partition));
            consumer.seekToBeginning(List.of(partition));
            expect(0L, consumer.position(partition));
            expect(Map.of(partition, 0L), consumer.beginningOffsets(List.of(partition)));
            expect(Map.of(partition, (long) SAMPLE_COUNT), consumer.endOffsets(List.of(partition)));
            expect(1, consumer.partitionsFor(topic).size());
            consumer.seek(partition, SAMPLE_COUNT + 1);
            expectThrown(OffsetOutOfRangeException.class, () -> consumer.poll(TIMEOUT));
        }
    }

    private void times(String topic) throws Exception {
        write(topic, Map.of());
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of())) {
            for (int i = 0; i < SAMPLE_COUNT; i += 11) {
                OffsetAndTimestamp exact =
                    consumer.offsetsForTimes(Map.of(partition, SAMPLE_TIME + 10L * i)).get(partition);
                expect(i + " of " + (SAMPLE_TIME + 10L * i), exact.offset() + " of " + exact.timestamp());
                expect(
                    (long) i,
                    consumer.offsetsForTimes(Map.of(partition, SAMPLE_TIME + 10L * i - 9)).get(partition).offset());
            }
            long later = SAMPLE_TIME + 10L * SAMPLE_COUNT;
            expect(null, consumer.offsetsForTimes(Map.of(partition, later)).get(partition));
        }
    }

    private void headerWithoutValue(String topic) throws Exception {
        List<Header> headers = List.of(new RecordHeader("none", (byte[]) null), new RecordHeader("", new byte[0]));
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            producer.send(new ProducerRecord<>(topic, 0, (byte[]) null, bytes("v"), headers)).get();
        }
        expect(headers, Arrays.asList(read(topic, 0, 1, Map.of()).get(0).headers().toArray()));
    }

    private void acks(String topic) throws Exception {
        for (String acks : List.of("0", "1", "all")) {
            Map<String, Object> options = Map.of("acks", acks, "enable.idempotence", false);
            try (KafkaProducer<byte[], byte[]> producer = producer(options)) {
                for (int i = 0; i < SAMPLE_COUNT; i++) {
                    producer.send(sample(topic + acks, i));
                }
            }
            expectSample(read(topic + acks, 0, SAMPLE_COUNT, Map.of()), 0);
        }
    }

    /** Six partitions, some of them paused now and then: fetch sessions that gain and lose partitions (KIP-227). */
    private void manyPartitions(String topic) throws Exception {
        int count = 6;
        int each = 2000;
        admin.createTopics(List.of(new NewTopic(topic, count, (short) 1))).all().get();
        Map<String, Object> smallBatches = Map.of("compression.type", "lz4", "batch.size", 1000);
        try (KafkaProducer<byte[], byte[]> producer = producer(smallBatches)) {
            for (int i = 0; i < each * count; i++) {
                producer.send(new ProducerRecord<>(topic, i % count, null, bytes("" + i / count)));
            }
        }
        List<TopicPartition> all = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            all.add(new TopicPartition(topic, i));
        }
        Map<TopicPartition, Integer> seen = new TreeMap<>((a, b) -> a.partition() - b.partition());
        Map<String, Object> smallFetches = Map.of("max.partition.fetch.bytes", 4096, "max.poll.records", 100);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(smallFetches)) {
            consumer.assign(all);
            consumer.seekToBeginning(all);
            long deadline = System.nanoTime() + TIMEOUT.toNanos();
            for (int found = 0, polls = 0; found < each * count; polls++) {
                expect(true, System.nanoTime() < deadline);
                consumer.resume(all);
                if (polls % 3 != 0) {
                    List<TopicPartition> paused = all.subList(polls % count, count);
                    boolean anyLeft = all.stream()
                        .anyMatch(one -> !paused.contains(one) && seen.getOrDefault(one, 0) < each);
                    consumer.pause(anyLeft ? paused : List.of());
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(TIMEOUT)) {
                    TopicPartition partition = new TopicPartition(topic, record.partition());
                    int next = seen.getOrDefault(partition, 0);
                    expect(next + ": " + next, record.offset() + ": " + new String(record.value(), UTF_8));
                    seen.put(partition, next + 1);
                    found++;
                }
            }
        }
    }

    /** A fetch that waits for data is answered when there is some, not when its time is over. */
    private void longPoll(String topic) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        int wait = (int) TIMEOUT.toMillis();
        Map<String, Object> patient = Map.of("fetch.max.wait.ms", wait, "request.timeout.ms", 2 * wait);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(patient);
            KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seek(partition, 0);
            expect(true, consumer.poll(Duration.ofMillis(300)).isEmpty());
            long start = System.nanoTime();
            producer.send(sample(topic, 0)).get();
            expect(1, consumer.poll(TIMEOUT.multipliedBy(2)).count());
            expect(true, System.nanoTime() - start < TIMEOUT.toNanos() / 2);
            // Else it would wait for the fetch that it has sent meanwhile.
            consumer.close(CloseOptions.timeout(Duration.ZERO));
        }
    }

    private void tooLarge(String topic) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("max.request.size", 100_000_000))) {
            Future<RecordMetadata> refused = producer.send(new ProducerRecord<>(topic, 0, null, new byte[2_000_000]));
            expectFailure(RecordTooLargeException.class, refused);
            expect(0L, producer.send(new ProducerRecord<>(topic, 0, null, new byte[1_000_000])).get().offset());
        }
        expect(1_000_000, read(topic, 0, 1, Map.of()).get(0).value().length);
    }

    // ---- administration

    private void topics(String topic) throws Exception {
        NewTopic wanted = new NewTopic(topic, 2, (short) 1).configs(Map.of("retention.ms", "1000"));
        CreateTopicsOptions dry = new CreateTopicsOptions().validateOnly(true);
        admin.createTopics(List.of(wanted), dry).all().get();
        expectFailure(UnknownTopicOrPartitionException.class, admin.describeTopics(List.of(topic)).allTopicNames());

        var created = admin.createTopics(List.of(wanted));
        created.all().get();
        expect(2, created.numPartitions(topic).get());
        expect("1000", created.config(topic).get().get("retention.ms").value());
        Uuid id = created.topicId(topic).get();
        expectFailure(TopicExistsException.class, admin.createTopics(List.of(wanted)).all());
        expectFailure(
            InvalidTopicException.class,
            admin.createTopics(List.of(new NewTopic("no/name", 1, (short) 1))).all());
        expect(true, admin.listTopics().names().get().contains(topic));

        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
        expectFailure(
            InvalidPartitionsException.class,
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all());
        TopicDescription described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        expect(5, described.partitions().size());
        expect(id, described.topicId());
        Node node = admin.describeCluster().controller().get();
        for (var partition : described.partitions()) {
            expect(node, partition.leader());
            expect(List.of(node), partition.replicas());
            expect(List.of(node), partition.isr());
        }
        TopicCollection ids = TopicCollection.ofTopicIds(List.of(id));
        TopicDescription byId = admin.describeTopics(ids).allTopicIds().get().get(id);
        expect(topic + " of 5", byId.name() + " of " + byId.partitions().size());

        admin.deleteTopics(ids).all().get();
        expectFailure(UnknownTopicOrPartitionException.class, admin.deleteTopics(List.of(topic)).all());
        expectFailure(UnknownTopicIdException.class, admin.deleteTopics(ids).all());
        expect(false, admin.listTopics().names().get().contains(topic));
    }

    /** A producer outlives its topic: told that the topic's id is unknown, it goes on with the new one (KIP-516). */
    private void recreate(String topic) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            NewTopic wanted = new NewTopic(topic, 1, (short) 1);
            admin.createTopics(List.of(wanted)).all().get();
            expect(0L, producer.send(sample(topic, 0)).get().offset());
            expect(1L, producer.send(sample(topic, 1)).get().offset());
            admin.deleteTopics(List.of(topic)).all().get();
            admin.createTopics(List.of(wanted)).all().get();
            expect(0L, producer.send(sample(topic, 0)).get().offset());
            expect(1L, producer.send(sample(topic, 1)).get().offset());
        }
        expectSample(read(topic, 0, 2, Map.of()), 0);
    }

    private void configs(String topic) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        alter(resource, "max.message.bytes", "500", OpType.SET).get();
        alter(resource, "cleanup.policy", "compact", OpType.APPEND).get();
        ConfigEntry size = config(resource, "max.message.bytes");
        expect("500 by DYNAMIC_TOPIC_CONFIG", size.value() + " by " + size.source());
        expect("delete,compact", config(resource, "cleanup.policy").value());
        expect(ConfigSource.DEFAULT_CONFIG, config(resource, "segment.ms").source());
        expectFailure(InvalidConfigurationException.class, alter(resource, "retention.ms", "soon", OpType.SET));
        expectFailure(InvalidConfigurationException.class, alter(resource, "no.such.thing", "1", OpType.SET));
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            ProducerRecord<byte[], byte[]> large = new ProducerRecord<>(topic, 0, bytes("k"), new byte[1000]);
            expectFailure(RecordTooLargeException.class, producer.send(large));
            alter(resource, "max.message.bytes", null, OpType.DELETE).get();
            expect(0L, producer.send(large).get().offset());
        }
        expect("1048588", config(resource, "max.message.bytes").value());
        var listed = admin.listConfigResources(Set.of(ConfigResource.Type.TOPIC), new ListConfigResourcesOptions());
        expect(true, listed.all().get().contains(resource));
    }

    private void brokerConfigs() throws Exception {
        String broker = admin.describeCluster().controller().get().idString();
        ConfigResource resource = new ConfigResource(ConfigResource.Type.BROKER, broker);
        ConfigEntry before = config(resource, "log.retention.ms");
        alter(resource, "log.retention.ms", "86400000", OpType.SET).get();
        ConfigEntry changed = config(resource, "log.retention.ms");
        expect("86400000 by DYNAMIC_BROKER_CONFIG", changed.value() + " by " + changed.source());
        alter(resource, "log.retention.ms", null, OpType.DELETE).get();
        expect(before.value(), config(resource, "log.retention.ms").value());
        // Kafka has this exception for brokers where topics have InvalidConfigurationException.
        expectFailure(InvalidRequestException.class, alter(resource, "log.retention.ms", "soon", OpType.SET));
        expect(true, config(resource, "node.id").isReadOnly());
    }

    private void deleteRecords(String topic) throws Exception {
        write(topic, Map.of());
        TopicPartition partition = new TopicPartition(topic, 0);
        var deleted = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(40)));
        expect(40L, deleted.lowWatermarks().get(partition).get().lowWatermark());
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of())) {
            expect(Map.of(partition, 40L), consumer.beginningOffsets(List.of(partition)));
            consumer.assign(List.of(partition));
            consumer.seek(partition, 39);
            expectThrown(OffsetOutOfRangeException.class, () -> consumer.poll(TIMEOUT));
        }
        expectSample(read(topic, 40, SAMPLE_COUNT - 40, Map.of()), 40);
        expectFailure(
            org.apache.kafka.common.errors.OffsetOutOfRangeException.class,
            admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(SAMPLE_COUNT + 1))).all());
    }

    private void listOffsets(String topic) throws Exception {
        write(topic, Map.of());
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            producer.send(new ProducerRecord<>(topic, 0, SAMPLE_TIME, null, bytes("older"))).get();
        }
        expect((long) 0, offset(topic, OffsetSpec.earliest()));
        expect((long) 0, offset(topic, OffsetSpec.earliestLocal()));
        expect((long) SAMPLE_COUNT + 1, offset(topic, OffsetSpec.latest()));
        expect((long) SAMPLE_COUNT - 1, offset(topic, OffsetSpec.maxTimestamp()));
        expect((long) 50, offset(topic, OffsetSpec.forTimestamp(SAMPLE_TIME + 495)));
        expect((long) -1, offset(topic, OffsetSpec.latestTiered()));
    }

    private void cluster() throws Exception {
        var described = admin.describeCluster();
        List<Node> nodes = new ArrayList<>(described.nodes().get());
        expect(1, nodes.size());
        expect(nodes.get(0), described.controller().get());
        expect(address, nodes.get(0).host() + ":" + nodes.get(0).port());
        expect(false, described.clusterId().get().isEmpty());
        var features = admin.describeFeatures().featureMetadata().get();
        expect(true, features.finalizedFeatures().containsKey("metadata.version"));
        expect(true, features.supportedFeatures().containsKey("metadata.version"));
        var quorum = admin.describeMetadataQuorum().quorumInfo().get();
        expect(nodes.get(0).id(), quorum.leaderId());
        expect(1, quorum.voters().size());
        expect(true, quorum.highWatermark() >= 0);
    }

    private void logDirs(String topic) throws Exception {
        write(topic, Map.of());
        int broker = admin.describeCluster().controller().get().id();
        Map<String, LogDirDescription> folders =
            admin.describeLogDirs(List.of(broker)).allDescriptions().get().get(broker);
        expect(1, folders.size());
        LogDirDescription folder = folders.values().iterator().next();
        expect(null, folder.error());
        expect(true, folder.totalBytes().orElse(0) >= folder.usableBytes().orElse(Long.MAX_VALUE));
        var replica = folder.replicaInfos().get(new TopicPartition(topic, 0));
        expect(true, replica.size() > 0);
        expect(0L, replica.offsetLag());
    }

    private void producers(String topic) throws Exception {
        write(topic, Map.of());
        TopicPartition partition = new TopicPartition(topic, 0);
        List<ProducerState> states =
            admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers();
        expect(1, states.size());
        expect(SAMPLE_COUNT - 1, states.get(0).lastSequence());
        expect(0, states.get(0).producerEpoch());
        expect(SAMPLE_TIME + 10L * (SAMPLE_COUNT - 1), states.get(0).lastTimestamp());
        expect(OptionalLong.empty(), states.get(0).currentTransactionStartOffset());
    }

    private void leaders(String topic) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        TopicPartition partition = new TopicPartition(topic, 0);
        TopicPartition absent = new TopicPartition(topic, 9);
        var elected = admin.electLeaders(ElectionType.PREFERRED, Set.of(partition, absent)).partitions().get();
        expect(ElectionNotNeededException.class, elected.get(partition).get().getClass());
        expect(UnknownTopicOrPartitionException.class, elected.get(absent).get().getClass());
        expect(Map.of(), admin.listPartitionReassignments().reassignments().get());
        expectFailure(
            NoReassignmentInProgressException.class,
            admin.alterPartitionReassignments(Map.of(partition, Optional.empty())).all());
    }

    // ---- what the scenarios share

    private KafkaProducer<byte[], byte[]> producer(Map<String, Object> options) {
        return new KafkaProducer<>(with(options), new ByteArraySerializer(), new ByteArraySerializer());
    }

    private KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> options) {
        Map<String, Object> all = with(options);
        all.put("auto.offset.reset", "none");
        // Closing waits for the fetch that is under way.
        all.putIfAbsent("fetch.max.wait.ms", 50);
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private Map<String, Object> with(Map<String, Object> options) {
        Map<String, Object> all = new TreeMap<>(options);
        all.putAll(security());
        all.put("bootstrap.servers", address);
        return all;
    }

    private List<ConsumerRecord<byte[], byte[]>> read(
        String topic, long offset, int count, Map<String, Object> options) {
        TopicPartition partition = new TopicPartition(topic, 0);
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(options)) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, offset);
            while (found.size() < count) {
                var records = consumer.poll(TIMEOUT).records(partition);
                expect(false, records.isEmpty());
                found.addAll(records);
            }
        }
        return found;
    }

    private KafkaFuture<Void> alter(ConfigResource resource, String name, String value, OpType type) {
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(name, value), type);
        return admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all();
    }

    private ConfigEntry config(ConfigResource resource, String name) throws Exception {
        return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(name);
    }

    private long offset(String topic, OffsetSpec which) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        return admin.listOffsets(Map.of(partition, which)).partitionResult(partition).get().offset();
    }

    private static ProducerRecord<byte[], byte[]> sample(String topic, int i) {
        byte[] key = i % 5 == 0 ? null : bytes("key-" + i);
        byte[] value = i % 7 == 3 ? null : bytes(("value-" + i + " ").repeat(i % 10 + 1));
        List<Header> headers = List.of(
            new RecordHeader("n", bytes("" + i)),
            new RecordHeader("h", bytes("1")),
            new RecordHeader("h", bytes("2")),
            new RecordHeader("empty", new byte[0]));
        return new ProducerRecord<>(topic, 0, SAMPLE_TIME + 10L * i, key, value, headers);
    }

    private static void expectSample(List<ConsumerRecord<byte[], byte[]>> found, int first) {
        for (int i = 0; i < found.size(); i++) {
            ConsumerRecord<byte[], byte[]> record = found.get(i);
            ProducerRecord<byte[], byte[]> wanted = sample(record.topic(), first + i);
            expect((long) first + i, record.offset());
            expect(text(wanted.key()), text(record.key()));
            expect(text(wanted.value()), text(record.value()));
            expect(wanted.timestamp(), record.timestamp());
            expect(Arrays.asList(wanted.headers().toArray()), Arrays.asList(record.headers().toArray()));
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(UTF_8);
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, UTF_8);
    }

    static void expect(Object wanted, Object found) {
        if (!Objects.equals(wanted, found)) {
            throw new AssertionError("expected " + wanted + ", found " + found);
        }
    }

    static void expectThrown(Class<? extends Exception> wanted, Runnable action) {
        Class<?> thrown = null;
        try {
            action.run();
        } catch (Exception error) {
            thrown = error.getClass();
        }
        expect(wanted, thrown);
    }

    static void expectFailure(Class<? extends Exception> wanted, Future<?> future) throws Exception {
        Class<?> thrown = null;
        try {
            future.get(TIMEOUT.toSeconds(), TimeUnit.SECONDS);
        } catch (ExecutionException error) {
            thrown = error.getCause().getClass();
        }
        expect(wanted, thrown);
    }
}
