package kraft_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// TestRealKafkaReadableSecured: the brokers authenticate and authorize each client behind this process themselves. Nobody learns anything of a mirrored partition here that he would not learn of a broker.
func TestRealKafkaReadableSecured(t *testing.T) {
	users := map[string]string{"reader": "reader-secret", "writer": "writer-secret", "nobody": "nobody-secret"}
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 2, Authorizer: true, NodeConfig: map[int32]map[string]string{1: {"broker.rack": "one"}, 2: {"broker.rack": "two"}}, Client: kafkatest.Security{SASL: "PLAIN", Users: users}, Listeners: map[string]kafkatest.Security{
		"SECURE": {TLS: true, SASL: "SCRAM-SHA-512", Users: users}, "MUTUAL": {TLS: true, ClientCertificates: true},
	}})
	who := func(name string) kafkatest.Credentials {
		return kafkatest.Credentials{User: name, Password: users[name]}
	}
	const topic = "guarded"
	c.Allow("User:reader", []string{topic}, kadm.OpRead, kadm.OpDescribe)
	c.Allow("User:writer", []string{topic}, kadm.OpWrite, kadm.OpDescribe)
	c.CreateACLs(kadm.NewACLs().Allow("User:reader").AllowHosts().Groups("guarded").Operations(kadm.OpRead).ResourcePatternType(kadm.ACLPatternLiteral))

	l := &countedListener{Listener: freeListener(t)}
	cfg := config(t, c)
	cfg.ReplicationFactor, cfg.MinInSyncReplicas = 1, 1 // half of the clients are passed on to a broker without a copy
	cfg.Clients = &kraft.ClientListener{Name: "CLIENT", Protocol: "SASL_PLAINTEXT", Listener: l}
	j := joinWith(t, c, cfg)
	fill(t, j.create(topic, 1), 5, 10)
	node := l.Addr().String()
	as := func(name string, more ...kgo.Opt) []kgo.Opt {
		return append(append(c.ClientOptions(who(name)), kgo.SeedBrokers(node)), more...)
	}
	fromStart := []kgo.Opt{kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}

	for range 2 { // connections take brokers in turn
		consume(t, 50, as("reader", fromStart...)...)
		refusedAtOnce(t, topic, as("writer")...)
		cl, err := kgo.NewClient(as("writer", fromStart...)...)
		if err != nil {
			t.Fatal(err)
		}
		var denied error
		eventually(t, "a consumer without Read to be told so", func() bool {
			fetches := cl.PollFetches(bound(t))
			for _, e := range fetches.Errors() {
				denied = e.Err
			}
			if n := fetches.NumRecords(); n > 0 {
				t.Fatalf("a consumer without Read has %d records", n)
			}
			return denied != nil
		})
		if !errors.Is(denied, kerr.TopicAuthorizationFailed) {
			t.Errorf("a consumer without Read: %v", denied)
		}
		cl.Close()
		cl, err = kgo.NewClient(as("reader", kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableIdempotentWrite())...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cl.ProduceSync(bound(t), &kgo.Record{Topic: topic, Value: []byte("x")}).First(); !errors.Is(err, kerr.TopicAuthorizationFailed) {
			t.Errorf("a producer without Write: %v", err)
		}
		cl.Close()
		nothingIsTold(t, topic, j, as("nobody"))
	}
	wrong := kafkatest.Credentials{User: "reader", Password: "wrong"}
	cl, err := kgo.NewClient(append(c.ClientOptions(wrong), kgo.SeedBrokers(node), kgo.RequestRetries(0))...)
	if err != nil {
		t.Fatal(err)
	}
	if err := cl.Ping(bound(t)); !errors.Is(err, kerr.SaslAuthenticationFailed) {
		t.Errorf("a wrong password: %v", err)
	}
	cl.Close()

	t.Run("Java", func(t *testing.T) {
		file := clientProperties(t, "security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN",
			`sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="writer" password="writer-secret";`)
		began := time.Now()
		out, err := tool(t, "one record\n", "ConsoleProducer", "--bootstrap-server", node, "--topic", topic, "--command-config", file)
		if took := time.Since(began); took > 30*time.Second || !strings.Contains(out, readOnlyText) {
			t.Errorf("a producer with Write, after %s: %v\n%s", took, err, out)
		}
		out, err = tool(t, "", "consumer.ConsoleConsumer", "--bootstrap-server", node, "--topic", topic, "--partition", "0", "--offset", "earliest", "--timeout-ms", "10000", "--command-config", file)
		if !strings.Contains(out, "TopicAuthorizationException") || strings.Contains(out, "xxxx-") {
			t.Errorf("a consumer without Read: %v\n%s", err, out)
		}
	})

	authority, _, _ := c.PEM("client")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	trusted := func() (*tls.Config, error) { return &tls.Config{RootCAs: roots}, nil }
	own := c.ServerTLS("SECURE", "mirror")
	shown := func() (*tls.Config, error) { return own, nil }
	elsewhere := c.ServerTLS("SECURE", "mirror", "elsewhere.example")

	t.Run("preflight", func(t *testing.T) {
		for _, look := range []struct {
			clients kraft.ClientListener
			says    string
		}{
			{kraft.ClientListener{Name: "MUTUAL", Protocol: "SSL", TLS: shown, BrokerTLS: trusted}, "listener MUTUAL of the brokers 1, 2 asks clients for a certificate"},
			{kraft.ClientListener{Name: "CLIENTS", Protocol: "SASL_PLAINTEXT"}, "broker 1 has no listener CLIENTS"},
			{kraft.ClientListener{Name: "INTERNAL"}, "INTERNAL is the brokers' own listener"},
			{kraft.ClientListener{Name: "SECURE", Protocol: "SSL", TLS: shown, BrokerTLS: trusted}, "speaks SASL_SSL, and Clients.Protocol is SSL"},
			{kraft.ClientListener{Name: "CLIENT", Protocol: "SASL_PLAINTEXT", Advertised: "0.0.0.0:9092"}, "clients cannot connect to the advertised address"},
			{kraft.ClientListener{Name: "CLIENT", Protocol: "SASL_PLAINTEXT", Advertised: "no-such-host.invalid:9092"}, "the advertised host no-such-host.invalid"},
			{kraft.ClientListener{Name: "CLIENT", Protocol: "SASL_PLAINTEXT", Listen: node}, "listening for the clients"},
			{kraft.ClientListener{Name: "SECURE", Protocol: "SASL_SSL", BrokerTLS: trusted, TLS: func() (*tls.Config, error) { return elsewhere, nil }}, "not for the advertised host"},
			{kraft.ClientListener{Name: "SECURE", Protocol: "SASL_SSL", BrokerTLS: trusted, TLS: func() (*tls.Config, error) { return expiredAs(t, own), nil }}, "has expired"},
			{kraft.ClientListener{Name: "SECURE", Protocol: "SASL_SSL", TLS: shown, BrokerTLS: func() (*tls.Config, error) { return &tls.Config{}, nil }}, "no broker's listener SECURE is reached from here"},
		} {
			other := cfg
			if look.clients.Listen == "" {
				look.clients.Listen = "127.0.0.1:0"
			}
			other.Clients = &look.clients
			if r := preflight(t, other); !found(r, kraft.AboutClientListener, kraft.Blocks, look.says) {
				t.Errorf("%q is not found:\n%s", look.says, r)
			}
		}
		other := cfg
		other.Clients = &kraft.ClientListener{Name: "SECURE", Protocol: "SASL_SSL", Listen: "127.0.0.1:0", TLS: shown, BrokerTLS: trusted}
		if r := preflight(t, other); !found(r, kraft.AboutClientListener, kraft.Fine, "SECURE, SASL_SSL; reached at all 2 brokers") || r.Err() != nil {
			t.Errorf("where all is well:\n%s", r)
		}
	})

	j.Close()
	l = &countedListener{Listener: freeListener(t)}
	cfg.Clients = &kraft.ClientListener{Name: "SECURE", Protocol: "SASL_SSL", Listener: l, TLS: shown, BrokerTLS: trusted}
	cfg.ReplicationFactor = 2
	j = joinWith(t, c, cfg)
	node = l.Addr().String()
	pem := filepath.Join(t.TempDir(), "authority.pem")
	if err := os.WriteFile(pem, authority, 0o600); err != nil {
		t.Fatal(err)
	}
	properties := clientProperties(t, "security.protocol=SASL_SSL", "sasl.mechanism=SCRAM-SHA-512", "ssl.truststore.type=PEM", "ssl.truststore.location="+pem,
		`sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="reader" password="reader-secret";`)
	t.Run("SASL_SSL", func(t *testing.T) {
		consume(t, 50, append(append(c.ListenerOptions("SECURE", who("reader"), nil), kgo.SeedBrokers(node)), fromStart...)...)
		refusedAtOnce(t, topic, append(c.ListenerOptions("SECURE", who("writer"), nil), kgo.SeedBrokers(node))...)
		out, err := tool(t, "", "consumer.ConsoleConsumer", "--bootstrap-server", node, "--topic", topic, "--from-beginning", "--group", "guarded", "--max-messages", "50", "--timeout-ms", "20000", "--command-config", properties)
		if n := strings.Count(out, "xxxx-"); err != nil || n != 50 {
			t.Errorf("%d of 50 records: %v\n%.2000s", n, err, strings.ReplaceAll(out, strings.Repeat("x", 1000), "x"))
		}
	})

	t.Run("a broker dies", func(t *testing.T) {
		const topic = "guarded-twice"
		c.Allow("User:reader", []string{topic}, kadm.OpRead, kadm.OpDescribe)
		log := j.create(topic, 1)
		fill(t, log, 5, 10)
		c.WaitSameSegments(topic, 0, 1, 2)
		var near []*kgo.Client // consumers at the broker that lives, whose other connections go over both
		for range 2 {
			cl, err := kgo.NewClient(append(c.ListenerOptions("SECURE", who("reader"), nil), kgo.SeedBrokers(node), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.Rack("one"))...)
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			consumeWith(t, cl, 50)
			near = append(near, cl)
		}
		far := startTool(t, "consumer.ConsoleConsumer", "--bootstrap-server", node, "--topic", topic, "--from-beginning", "--group", "guarded", "--max-messages", "60", "--command-config", properties, "--command-property", "client.rack=two")
		eventually(t, "the consumer at broker 2 to have the first records", func() bool { return strings.Count(far.String(), "xxxx-") == 50 })
		c.Kill(2)
		fill(t, log, 1, 10)
		for i, cl := range near {
			if got := consumeWith(t, cl, 10); len(got) != 10 || got[0].Offset != 50 {
				t.Errorf("consumer %d goes on with %d records from %d on", i, len(got), got[0].Offset)
			}
		}
		eventually(t, "the consumer whose broker died to go on at another one", func() bool { return strings.Count(far.String(), "xxxx-") == 60 })
	})
}

// TestSecurityPageListsWhatIsDoneForClients compares SECURITY.md with the manual of the listener for clients, which its own test compares with the code.
func TestSecurityPageListsWhatIsDoneForClients(t *testing.T) {
	manual, err := os.ReadFile("../../internal/clientlistener/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(manual), "what is done\n")
	table, _, ends := strings.Cut(table, "\n\tall others ")
	if !ok || !ends {
		t.Fatal("the manual has no table")
	}
	var are []string
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) > 2 {
			are = append(are, f[0])
		}
	}
	slices.Sort(are)
	if said := kindsOf(t, "request kinds of clients"); !slices.Equal(said, are) {
		t.Errorf("SECURITY.md lists\n%v, the manual\n%v", said, are)
	}
}

func clientProperties(t *testing.T, lines ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "client.properties")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// nothingIsTold asks for a mirrored partition, in every way that this process answers, as somebody who may do nothing with the topic.
func nothingIsTold(t *testing.T, topic string, j *joined, options []kgo.Opt) {
	t.Helper()
	cl, err := kgo.NewClient(append(options, kgo.RequestRetries(0))...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	known, err := j.Topic(bound(t), topic)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(req kmsg.Request) kmsg.Response {
		t.Helper()
		resp, err := cl.SeedBrokers()[0].Request(bound(t), req)
		if err != nil {
			t.Fatalf("%s: %v", kmsg.NameForKey(req.Key()), err)
		}
		return resp
	}
	denied := func(what string, code int16) {
		t.Helper()
		if code != kerr.TopicAuthorizationFailed.Code {
			t.Errorf("%s: code %d", what, code)
		}
	}

	fetch := kmsg.NewPtrFetchRequest()
	fetch.MaxBytes, fetch.SessionEpoch = 1<<20, -1
	ft := kmsg.NewFetchRequestTopic()
	ft.Topic, ft.TopicID = topic, known.ID
	fp := kmsg.NewFetchRequestTopicPartition()
	fp.PartitionMaxBytes = 1 << 20
	ft.Partitions = append(ft.Partitions, fp)
	fetch.Topics = append(fetch.Topics, ft)
	got := ask(fetch).(*kmsg.FetchResponse).Topics[0].Partitions[0]
	denied("Fetch", got.ErrorCode)
	if got.HighWatermark > 0 || got.LogStartOffset > 0 || got.PreferredReadReplica >= 0 || len(got.RecordBatches) > 0 {
		t.Errorf("Fetch tells %+v", got)
	}

	offsets := kmsg.NewPtrListOffsetsRequest()
	ot := kmsg.NewListOffsetsRequestTopic()
	op := kmsg.NewListOffsetsRequestTopicPartition()
	ot.Topic, op.Timestamp = topic, -1
	ot.Partitions = append(ot.Partitions, op)
	offsets.Topics, offsets.ReplicaID = append(offsets.Topics, ot), -1
	listed := ask(offsets).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	denied("ListOffsets", listed.ErrorCode)
	if listed.Offset > 0 {
		t.Errorf("ListOffsets tells %+v", listed)
	}

	epochs := kmsg.NewPtrOffsetForLeaderEpochRequest()
	et := kmsg.NewOffsetForLeaderEpochRequestTopic()
	et.Topic, et.Partitions = topic, append(et.Partitions, kmsg.NewOffsetForLeaderEpochRequestTopicPartition())
	epochs.Topics, epochs.ReplicaID = append(epochs.Topics, et), -1
	denied("OffsetForLeaderEpoch", ask(epochs).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0].ErrorCode)

	remove := kmsg.NewPtrDeleteRecordsRequest()
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rt.Topic, rt.Partitions = topic, append(rt.Partitions, kmsg.NewDeleteRecordsRequestTopicPartition())
	remove.Topics, remove.TimeoutMillis = append(remove.Topics, rt), 5000
	denied("DeleteRecords", ask(remove).(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0].ErrorCode)

	produce := kmsg.NewPtrProduceRequest()
	pt := kmsg.NewProduceRequestTopic()
	pp := kmsg.NewProduceRequestTopicPartition()
	pt.Topic, pt.TopicID, pp.Records = topic, known.ID, data(0, 0, 1, "x")
	pt.Partitions = append(pt.Partitions, pp)
	produce.Acks, produce.TimeoutMillis, produce.Topics = -1, 5000, append(produce.Topics, pt)
	denied("Produce", ask(produce).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
}
