import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Base64;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Answers lines of a file with what Java and Kafka make of them, as Base64:
 * "name CERTIFICATE" with a subject's name, "map RULES NAME" with a principal's name, or "-" if there is none.
 */
public class PrincipalNames {
    public static void main(String[] args) throws Exception {
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            String[] parts = line.split(" ", -1);
            byte[] first = Base64.getDecoder().decode(parts[1]);
            String answer;
            if (parts[0].equals("name")) {
                var certificate = (X509Certificate) factory.generateCertificate(new ByteArrayInputStream(first));
                answer = certificate.getSubjectX500Principal().getName();
            } else {
                String name = new String(Base64.getDecoder().decode(parts[2]), StandardCharsets.UTF_8);
                try {
                    answer = SslPrincipalMapper.fromRules(new String(first, StandardCharsets.UTF_8)).getName(name);
                } catch (SslPrincipalMapper.NoMatchingRule e) {
                    answer = null;
                }
            }
            System.out.println(answer == null
                ? "-" : "=" + Base64.getEncoder().encodeToString(answer.getBytes(StandardCharsets.UTF_8)));
        }
    }
}
