package mirror

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkaconfig"
	"github.com/clustermirror/clustermirror/internal/secret"
)

func TestSettingDefinitionsMatchTheirTable(t *testing.T) {
	var b strings.Builder
	orNone := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	for _, d := range SettingDefinitions() {
		name := d.Name
		if len(d.Aliases) > 0 {
			name += " (" + strings.Join(d.Aliases, ", ") + ")"
		}
		kind := d.Type
		if d.Secret {
			kind += ", secret"
		}
		fmt.Fprintf(&b, "%s | %s | %s | default %s | %s\n    %s\n", name, d.Level, kind, orNone(d.Default), orNone(d.Valid), d.Doc)
	}
	want, err := os.ReadFile("testdata/settings.txt")
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the definitions are\n%s\nand testdata/settings.txt differs", b.String())
	}
}

func TestSettingDefinitionsAreWhole(t *testing.T) {
	seen := map[string]bool{}
	kinds := []string{"int", "long", "short", "boolean", "string", "list", "password"}
	for i, d := range SettingDefinitions() {
		for _, name := range append([]string{d.Name}, d.Aliases...) {
			if seen[name] {
				t.Errorf("%s is there twice", name)
			}
			seen[name] = true
		}
		if !slices.Contains(kinds, d.Type) || d.Doc == "" || d.Level.String() == "unknown" || d.Secret != (d.Type == "password") {
			t.Errorf("%+v", d)
		}
		if d.Default != "" {
			if f := settingTable[i].check(d.Name, d.Default); f != nil {
				t.Errorf("a default is no valid value: %v", f)
			}
		}
	}
	list := SettingDefinitions()
	for i := range list {
		list[i].Name = "changed"
		for j := range list[i].Aliases {
			list[i].Aliases[j] = "changed"
		}
	}
	if again := SettingDefinitions(); again[0].Name == "changed" || slices.ContainsFunc(again, func(d SettingDefinition) bool { return slices.Contains(d.Aliases, "changed") }) {
		t.Error("a caller can change the definitions")
	}
}

func TestSettingsEffective(t *testing.T) {
	s := Settings{"topics.include": " a , b ", "mirror.groups.exclude": "g", "mirror.topic.set.core": "a", "colour": "red", "mirror.topics.exclude": ""}
	for name, want := range map[string]string{
		"mirror.topics.include": "a , b", "topics.include": "a , b", "mirror.groups.exclude": "g", "groups.exclude": "g", "mirror.groups.include": ".*", "mirror.acl.include": "*",
		"mirror.topic.set.core": "a", "colour": "red", "taste": "", "mirror.topics.exclude": "", "security.protocol": "PLAINTEXT", "sasl.mechanism": "PLAIN", "bootstrap.servers": "",
	} {
		if got := s.Effective(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := Settings(nil).Effective("mirror.topics.exclude"); got != "__.*" {
		t.Errorf("without settings %q", got)
	}
}

func TestSettingsCanonical(t *testing.T) {
	s := Settings{"topics.include": "a", "mirror.topics.include": " a ", "acls.include": "*", "colour": "red"}
	c, err := s.Canonical()
	if want := (Settings{"mirror.topics.include": " a ", "mirror.acl.include": "*", "colour": "red"}); err != nil || !reflect.DeepEqual(c, want) {
		t.Errorf("%v, %v", c, err)
	}
	s["topics.include"] = "b"
	_, err = s.Canonical()
	var fault *SettingError
	if !errors.As(err, &fault) || fault.Setting != "mirror.topics.include" || !strings.Contains(err.Error(), "topics.include; leave one of them out") {
		t.Errorf("two names with different values: %v", err)
	}
	if err := s.Check(); !strings.Contains(fmt.Sprint(err), "leave one of them out") {
		t.Errorf("Check: %v", err)
	}
}

func TestSettingsCheckTellsEveryFault(t *testing.T) {
	s := Settings{
		"mirror.num.replica.fetchers": "0", "mirror.state.topic.replication.factor": "40000", "mirror.metadata.refresh.interval.ms": "soon", "fetch.backoff.ms": "-1",
		"mirror.failed.retry.max.backoff.ms": "9223372036854775807", "mirror.failed.retry.max.attempts": "32768",
		"bootstrap.servers": "a:9092,b", "mirror.topics.include": "ok,(", "topics.exclude": "a,,b", "mirror.acl.include": "TOPIC;x;EAT", "mirror.loss.policy": "shrug",
		"security.protocol": "TLS", "mirror.topic.set.bad name": "a", "mirror.topic.set.": "a", "mirror.topic.sets.x": "a", "sasl.mecanism": "PLAIN", "mirror.coordinator.threads": "1",
		"mirror.groups.include": "${env:GROUPS}", "ssl.endpoint.identification.algorithm": "http",
	}
	err := s.Check()
	if err == nil {
		t.Fatal("no fault")
	}
	lines := strings.Split(err.Error(), "\n")
	want := []string{
		`setting bootstrap.servers = "a:9092,b": "b" is no host:port; valid: host:port, separated by commas; needed when a mirror is created`,
		`setting fetch.backoff.ms = "-1": is less than 0; valid: at least 0`,
		`setting mirror.acl.include = "TOPIC;x;EAT": rule "TOPIC;x;EAT": "EAT" is none of *, ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ` +
			`ALTER_CONFIGS, IDEMPOTENT_WRITE, CREATE_TOKENS, DESCRIBE_TOKENS, TWO_PHASE_COMMIT; valid: type;name;operation;permission;principal, separated by commas; ` +
			`* is any, fields at the end may be left out`,
		`setting mirror.coordinator.threads: is not supported: there is no coordinator in the brokers; leave it out`,
		`setting mirror.failed.retry.max.attempts = "32768": is more than 32767; valid: 0 to 32767`,
		`setting mirror.failed.retry.max.backoff.ms = "9223372036854775807": is more than 9223372036854; valid: at least 1`,
		`setting mirror.groups.include = "${env:GROUPS}": references ${…} are looked up in settings of connections only; write the value itself`,
		`setting mirror.loss.policy = "shrug": is none of restart, fail, keep`,
		`setting mirror.metadata.refresh.interval.ms = "soon": is no whole number; valid: at least 0`,
		`setting mirror.num.replica.fetchers = "0": is less than 1; valid: at least 1`,
		`setting mirror.state.topic.replication.factor = "40000": is more than 32767; valid: 1 to 32767`,
		`setting mirror.topic.set.: a topic set needs a name of 1–249 ASCII letters, digits, '.', '_' and '-' behind mirror.topic.set.`,
		`setting mirror.topic.set.bad name: a topic set needs a name of 1–249 ASCII letters, digits, '.', '_' and '-' behind mirror.topic.set.`,
		`setting mirror.topic.sets.x: is not known; the closest known name is mirror.topic.set.<name>`,
		"setting mirror.topics.include = \"ok,(\": pattern \"(\" is no regular expression (RE2): error parsing regexp: missing closing ): `(`; valid: regular expressions (RE2), " +
			"separated by commas; each has to match a whole name",
		`setting sasl.mecanism: is not known; the closest known name is sasl.mechanism`,
		`setting security.protocol = "TLS": is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL`,
		`setting ssl.endpoint.identification.algorithm = "http": is neither https nor empty; valid: https; empty does not check host names`,
		`setting topics.exclude = "a,,b": an empty pattern is no regular expression (RE2); leave it out; valid: regular expressions (RE2), separated by commas; each has to match a whole name`,
	}
	for i := range max(len(lines), len(want)) {
		var got, wanted string
		if i < len(lines) {
			got = lines[i]
		}
		if i < len(want) {
			wanted = want[i]
		}
		if got != wanted {
			t.Errorf("fault %d:\n%s\nwant\n%s", i, got, wanted)
		}
	}
	if !errors.Is(err, &Error{Code: InvalidConfig}) || errors.Is(err, &Error{Code: InvalidRequest}) || !errors.Is(err, ErrPattern) {
		t.Error("the error is not InvalidConfig and ErrPattern")
	}
}

func TestSettingsCheckAcceptsWhatIsRight(t *testing.T) {
	s := Settings{
		"bootstrap.servers": "a:9092, [::1]:9093", "mirror.topics.include": `orders\..*,a|b`, "mirror.topics.exclude": "", "mirror.acl.include": "TOPIC;orders.*, *;*;*;*;User:alice, group;g;read;allow",
		"mirror.topic.set.core": "orders,payments", "mirror.loss.policy": "keep", "mirror.start.floor": "12", "source.cluster.id": "x", "mirror.destination.cluster.id": "y",
		"request.timeout.ms": " 5000 ", "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": "${file:/x:y}", "ssl.truststore.location": "${env:STORE}",
		"connections.max.idle.ms": "${env:IDLE}", "ssl.endpoint.identification.algorithm": "",
	}
	if err := s.Check(MirrorSetting); err != nil {
		t.Error(err)
	}
	if err := s.Check(NodeSetting); err == nil || strings.Count(err.Error(), "belongs to a mirror, not here") != len(s) {
		t.Errorf("as a node's: %v", err)
	}
	node := Settings{"mirror.num.replica.fetchers": "2", "fetch.backoff.ms": "0"}
	if err := errors.Join(node.Check(NodeSetting), node.Check(), node.Check(NodeSetting, MirrorSetting)); err != nil {
		t.Error(err)
	}
	if err := node.Check(MirrorSetting); err == nil || strings.Count(err.Error(), "belongs to a node, not here") != 2 {
		t.Errorf("as a mirror's: %v", err)
	}
	if err := (Settings{"bootstrap.servers": ""}).Check(); err == nil {
		t.Error("no brokers are accepted")
	}
	for _, address := range []string{"a", ":9092", "a:0", "a:port", "a:123456", "a:1,"} {
		if err := (Settings{"bootstrap.servers": address}).Check(); err == nil {
			t.Errorf("%q is accepted", address)
		}
	}
}

// secretMarker is nowhere else.
const secretMarker = "hunter2-marker"

func TestSettingsNeverPrintSecrets(t *testing.T) {
	s := Settings{"mirror.num.replica.fetchers": "visible"}
	for _, d := range SettingDefinitions() {
		if d.Secret {
			s[d.Name] = secretMarker
		}
	}
	for _, name := range []string{"sasl.jaas.confg", "ssl.key.pasword", "SSL.Key.Password", "my.password", "colour.token", "security.thing"} {
		s[name] = secretMarker
	}
	if len(s) < 12 {
		t.Fatalf("only %d settings", len(s))
	}
	var logged bytes.Buffer
	for _, handler := range []slog.Handler{slog.NewTextHandler(&logged, nil), slog.NewJSONHandler(&logged, nil)} {
		slog.New(handler).Info("settings", "settings", s)
	}
	entry := MirrorEntry{Name: "m", Settings: s}
	state := ControlState{Mirrors: []MirrorEntry{entry}}
	for what, text := range map[string]string{
		"String": s.String(), "%v": fmt.Sprintf("%v", s), "%+v": fmt.Sprintf("%+v", s), "%#v": fmt.Sprintf("%#v", s), "%q": fmt.Sprintf("%q", s), "log": logged.String(),
		"entry": fmt.Sprintf("%v %+v %#v", entry, entry, entry), "state": fmt.Sprintf("%v %+v %#v", state, state, state),
		"Check": fmt.Sprint(s.Check()), "CheckStored": fmt.Sprint(s.CheckStored()),
	} {
		if strings.Contains(text, secretMarker) {
			t.Errorf("%s prints a secret: %s", what, text)
		}
	}
	if text := s.String(); !strings.Contains(text, "mirror.num.replica.fetchers=visible") || !strings.Contains(text, "sasl.jaas.config=[hidden]") {
		t.Errorf("%s", text)
	}
	if !strings.Contains(logged.String(), "visible") || !strings.Contains(logged.String(), "[hidden]") {
		t.Errorf("%s", logged.String())
	}
}

func TestSettingsCheckStoredRefusesSecretsThemselves(t *testing.T) {
	fine := Settings{
		"bootstrap.servers": "a:1", "ssl.key.password": "${env:KEY}", "ssl.keystore.password": "${file:/etc/m.properties:p}", "ssl.keystore.key": "${directory:/etc/m:key.pem}",
		"ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----", "ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE-----", "ssl.truststore.password": " ",
	}
	for _, line := range []string{
		"${file:/etc/m.properties:jaas}",
		`org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="${env:P}";`,
		`org.apache.kafka.common.security.scram.ScramLoginModule required username='u' password=${directory:/etc/m:p} tokenauth=true ;`,
		`org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId="c" clientSecret="${env:S}" scope="a b";`,
		`org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="alice" extension_x="y";`,
	} {
		fine["sasl.jaas.config"] = line
		if err := fine.CheckStored(); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	for _, c := range []struct{ name, value string }{
		{"ssl.key.password", secretMarker}, {"ssl.key.password", secretMarker + "${env:X}"}, {"ssl.key.password", "${vault:" + secretMarker + "}"}, {"ssl.keystore.key", secretMarker},
		{"ssl.keystore.password", secretMarker}, {"ssl.truststore.password", secretMarker}, {"sasl.jaas.confg", secretMarker},
		{"sasl.jaas.config", secretMarker},
		{"sasl.jaas.config", `x.PlainLoginModule required username="u" password="` + secretMarker + `";`},
		{"sasl.jaas.config", `x.PlainLoginModule required username="u" password="${env:P}` + secretMarker + `";`},
		{"sasl.jaas.config", `x.PlainLoginModule required username="u" password=${env:P} Password="` + secretMarker + `";`},
		{"sasl.jaas.config", `x.PlainLoginModule required username="u" password="${env:P}"; ` + secretMarker},
		{"sasl.jaas.config", `x.PlainLoginModule required username="u" /* ` + secretMarker + ` */ password="${env:P}";`},
		{"sasl.jaas.config", `x.PlainLoginModule required username="u\" password="` + secretMarker + `";`},
	} {
		s := maps.Clone(fine)
		s[c.name] = c.value
		err := s.CheckStored()
		var fault *SettingError
		if !errors.As(err, &fault) || fault.Setting != c.name || !strings.Contains(err.Error(), "${env:NAME}") || strings.Contains(err.Error(), secretMarker) {
			t.Errorf("%s=%s: %v", c.name, c.value, err)
		}
	}
}

func TestReconnectNeededOnlyForConnections(t *testing.T) {
	never := []string{
		"mirror.topics.include", "mirror.topics.exclude", "mirror.groups.include", "mirror.groups.exclude", "mirror.acl.include", "topics.include", "topics.exclude", "groups.include",
		"groups.exclude", "acls.include", "mirror.topic.set.x", "mirror.loss.policy", "mirror.start.floor", "mirror.replication.throttled.rate", "source.cluster.id", "mirror.destination.cluster.id",
		"mirror.topic.properties.exclude", "topic.properties.exclude",
	}
	for _, d := range SettingDefinitions() {
		if d.Level == NodeSetting || strings.HasPrefix(d.Name, topicSetPrefix) {
			continue
		}
		for _, name := range append([]string{d.Name}, d.Aliases...) {
			before, after := Settings{"request.timeout.ms": "1"}, Settings{"request.timeout.ms": "1", name: "another"}
			if got, want := ReconnectNeeded(before, after), !slices.Contains(never, name); got != want || ReconnectNeeded(after, before) != want {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
			if ReconnectNeeded(after, after) || ReconnectNeeded(Settings{}, Settings{d.Name: d.Default}) {
				t.Errorf("%s: no change reconnects", name)
			}
		}
	}
	if ReconnectNeeded(Settings{}, Settings{"mirror.topic.set.x": "a"}) || !ReconnectNeeded(Settings{}, Settings{"colour": "red"}) {
		t.Error("a topic set reconnects, or an unknown setting does not")
	}
}

func TestNodeOptionsFromSettings(t *testing.T) {
	o, err := NodeOptionsFrom(nil)
	if want := (NodeOptions{50, 3, 1, 30 * time.Second, time.Second, RetryPolicy{Initial: time.Second, Max: 300 * time.Second}, 0, 24 * time.Hour, 0}); err != nil || o != want {
		t.Errorf("defaults %+v, want %+v; %v", o, want, err)
	}
	o, err = NodeOptionsFrom(Settings{
		"mirror.state.topic.num.partitions": "3", "mirror.state.topic.replication.factor": "1", "mirror.num.replica.fetchers": "4", "mirror.metadata.refresh.interval.ms": "0",
		"fetch.backoff.ms": " 250 ", "mirror.failed.retry.initial.backoff.ms": "10", "mirror.failed.retry.max.backoff.ms": "9223372036854", "mirror.failed.retry.max.attempts": "32767",
		"mirror.verification.rate": "4194304", "mirror.verification.interval.ms": "60000", "mirror.node.throttled.rate": "1048576",
		"bootstrap.servers": "no address", "colour": "red",
	})
	if want := (NodeOptions{3, 1, 4, time.Millisecond, 250 * time.Millisecond, RetryPolicy{Initial: 10 * time.Millisecond, Max: 9223372036854 * time.Millisecond, Attempts: 32767}, 4 << 20, time.Minute, 1 << 20}); err != nil || o != want {
		t.Errorf("%+v, want %+v; %v", o, want, err)
	}
	_, err = NodeOptionsFrom(Settings{"mirror.num.replica.fetchers": "x", "mirror.fetch.backoff.ms": "1", "fetch.backoff.ms": "2", "mirror.state.topic.num.partitions": "0"})
	if text := fmt.Sprint(err); strings.Count(text, "\n") != 2 || !errors.Is(err, &Error{Code: InvalidConfig}) {
		t.Errorf("three faults: %v", err)
	}
}

func TestTypedMirrorSettings(t *testing.T) {
	f, err := Settings(nil).FetchOptions()
	if want := (FetchOptions{MaxWait: time.Second, MinBytes: 1, MaxBytes: 10 << 20, PartitionMaxBytes: 1 << 20}); err != nil || f != want {
		t.Errorf("%+v, want %+v; %v", f, want, err)
	}
	if _, err := (Settings{"fetch.wait.max.ms": "x", "fetch.min.bytes": "0"}).FetchOptions(); strings.Count(fmt.Sprint(err), "\n") != 1 {
		t.Errorf("two faults: %v", err)
	}
	for value, want := range map[string]LossPolicy{"": LossRestart, "restart": LossRestart, "fail": LossFail, "keep": LossKeep} {
		s := Settings{}
		if value != "" {
			s[lossPolicySetting] = value
		}
		if got, err := s.LossPolicy(); err != nil || got != want {
			t.Errorf("%q: %v, %v", value, got, err)
		}
	}
	if _, err := (Settings{lossPolicySetting: "Restart"}).LossPolicy(); err == nil {
		t.Error("a loss policy in capitals is accepted")
	}
	if floor, err := (Settings{startFloorSetting: "77"}).StartFloor(); err != nil || floor != 77 {
		t.Errorf("%d, %v", floor, err)
	}
	if floor, err := Settings(nil).StartFloor(); err != nil || floor != 0 {
		t.Errorf("%d, %v", floor, err)
	}
	if _, err := (Settings{startFloorSetting: "-1"}).StartFloor(); err == nil {
		t.Error("a negative floor is accepted")
	}
}

func TestSettingsCheckACLRules(t *testing.T) {
	for rule, fine := range map[string]bool{
		"*": true, "": true, "TOPIC": true, "cluster_mirror;m;alter": true, "*;*;*;*;*": true, "GROUP;g.*;READ;DENY;User:(alice|bob)": true, "TOPIC; a ; READ": true,
		"TABLE": false, "TOPIC;(": false, "TOPIC;a;READ;MAYBE": false, "TOPIC;a;READ;ALLOW;[": false, "TOPIC;a;READ;ALLOW;User:a;more": false, ";a": false, "TOPIC;": false, "TOPIC,": false,
	} {
		err := Settings{"acls.include": rule}.Check(MirrorSetting)
		if (err == nil) != fine {
			t.Errorf("%q: %v", rule, err)
		}
		if bad := strings.ContainsAny(rule, "(["); !fine && errors.Is(err, ErrPattern) != bad && rule != "TOPIC;" {
			t.Errorf("%q: a pattern is wrong: %v", rule, err)
		}
	}
}

// TestSettingsAreFollowed: no setting is taken that has no effect.
func TestSettingsAreFollowed(t *testing.T) {
	// seen is all that readers of settings make of them.
	seen := func(s Settings) string {
		node, err := NodeOptionsFrom(s)
		tuned, wrong := (&Config{}).tuned(s)
		filter, bad := s.TopicFilter()
		sets, torn := s.TopicSets()
		groups, odd := s.GroupFilter()
		excluded, strange := s.PropertyExcluded()
		rules, foreign := s.ACLRules()
		c := &call{Admin: &Admin{cfg: AdminConfig{Mirror: "m"}}, settings: s}
		clusters, differ := c.find(&ControlState{})
		connection, refused := kafkaconfig.Parse(s)
		return fmt.Sprint(node, err, tuned, wrong, filter.Includes("7"), filter.Excludes("7"), bad, len(sets), torn, groups.Matches("7"), groups.Matches("8"), odd,
			excluded("7"), strange, rules.Matches(ACL{ResourceType: "TOPIC", ResourceName: "8"}), foreign, clusters, differ, connection.Seeds, connection.RequestTimeout,
			len(connection.Options), refused)
	}
	for _, d := range SettingDefinitions() {
		name := strings.ReplaceAll(d.Name, "<name>", "x")
		base := Settings{bootstrapSetting: "a:9092"}
		with := maps.Clone(base)
		with[name] = map[string]string{lossPolicySetting: "keep", aclIncludeSetting: "TOPIC;7"}[name]
		if with[name] == "" {
			with[name] = "7"
		}
		followed := seen(with) != seen(base)
		if secret.InFamily(name) { // they are read when a connection is made; who does that refuses those that it does not know
			_, err := kafkaconfig.Parse(Settings{bootstrapSetting: "a:9092", name: d.Default})
			_, wrong := kafkaconfig.Parse(Settings{bootstrapSetting: "a:9092", name + "x": ""})
			followed = err == nil && wrong != nil
		}
		if name == "socket.connection.setup.timeout.ms" || name == "socket.connection.setup.timeout.max.ms" || name == "connections.max.idle.ms" { // inside of functions
			_, err := kafkaconfig.Parse(Settings{bootstrapSetting: "a:9092", name: "no number"})
			followed = err != nil
		}
		if !followed {
			t.Errorf("%s has no effect", name)
		}
	}
}
