import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.PrintStream;
import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * A Kafka Streams word count, exactly once, until its input ends or it is killed.
 *
 * The arguments are the broker's address, the topics of lines and of counts, and a folder for its state. It says
 * "running" when it has its partitions for the first time. Every change of a count is written, so that one that
 * was counted twice, or not at all, shows in the counts of its word.
 */
public class WordCount {
    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, UTF_8);
        KafkaStreams streams = new KafkaStreams(topology(args[1], args[2]).build(), settings(args[0], args[3]));
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING || now == KafkaStreams.State.ERROR) {
                answers.println(now.name().toLowerCase());
            }
        });
        streams.start();
        while (System.in.read() >= 0) {
            // Only the end of the input means something.
        }
        streams.close(Duration.ofSeconds(20));
    }

    private static StreamsBuilder topology(String lines, String counts) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(lines)
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word)
            .count(Materialized.as(Stores.inMemoryKeyValueStore("counts")))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(counts, Produced.with(Serdes.String(), Serdes.String()));
        return builder;
    }

    private static Properties settings(String address, String folder) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "word-count");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, address);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, folder);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 50);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 2000);
        settings.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), 300);
        // What a killed instance leaves open holds its successor up for so long.
        settings.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), 2000);
        return settings;
    }
}
