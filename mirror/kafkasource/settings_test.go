package kafkasource

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/mirror"
)

var _ func(*mirror.Config) = func(c *mirror.Config) { c.OpenSource = Open } // it has the shape

func TestFromSettings(t *testing.T) {
	settings := mirror.Settings{
		"bootstrap.servers": "a:1,b:2", "client.id": "dr", "request.timeout.ms": "6000", "security.protocol": "SASL_PLAINTEXT", "mirror.topics.include": "x",
		"sasl.jaas.config": `org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="${env:NOT_SET_HERE}";`,
	}
	cfg, err := FromSettings(settings)
	if err != nil || strings.Join(cfg.Seeds, " ") != "a:1 b:2" || cfg.Bound != 6*time.Second {
		t.Fatalf("%+v, %v", cfg, err)
	}
	if len(settings) != 6 {
		t.Errorf("the settings were changed: %v", settings)
	}
	src, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if id := src.client.OptValue(kgo.ClientID); id != "dr" {
		t.Errorf("client id %v", id)
	}
	for _, s := range []mirror.Settings{nil, {"bootstrap.servers": "a:1", "sasl.mechanisms": "x"}, {"bootstrap.servers": "a:1", "request.timeout.ms": "x"}} {
		if src, err := Open(t.Context(), s); err == nil || src != nil || !strings.HasPrefix(err.Error(), "kafkasource: settings of the source: ") {
			t.Errorf("%v gave %v, %v", s, src, err)
		}
	}
}

func TestFetchOptions(t *testing.T) {
	o, err := FetchOptions(nil)
	if want := (mirror.FetchOptions{MaxWait: time.Second, MinBytes: 1, MaxBytes: 10 << 20, PartitionMaxBytes: 1 << 20}); err != nil || o != want {
		t.Errorf("%+v, %v", o, err)
	}
	o, err = FetchOptions(mirror.Settings{"fetch.wait.max.ms": "5", "fetch.min.bytes": "6", "fetch.max.bytes": "7", "fetch.response.max.bytes": "8"})
	if want := (mirror.FetchOptions{MaxWait: 5 * time.Millisecond, MinBytes: 6, MaxBytes: 8, PartitionMaxBytes: 7}); err != nil || o != want {
		t.Errorf("%+v, %v", o, err)
	}
	if _, err := FetchOptions(mirror.Settings{"fetch.max.bytes": "0"}); err == nil || !strings.Contains(err.Error(), "fetch.max.bytes: is not a whole number") {
		t.Error(err)
	}
}

// What is wrong wherever it is read is told from what may be right on another host, and neither names a broker that is empty.
func TestSettingsThatNeverWork(t *testing.T) {
	never := &mirror.Error{Code: mirror.InvalidConfig}
	for what, c := range map[string]struct {
		settings mirror.Settings
		never    bool
	}{
		"no address":               {mirror.Settings{}, true},
		"SASL without a login":     {mirror.Settings{"bootstrap.servers": "h:9092", "security.protocol": "SASL_SSL"}, true},
		"a Java store":             {mirror.Settings{"bootstrap.servers": "h:9092", "security.protocol": "SSL", "ssl.truststore.type": "JKS"}, true},
		"a reference, unknown yet": {mirror.Settings{"bootstrap.servers": "${env:CLUSTERMIRROR_TEST_NOT_SET}"}, false},
	} {
		src, err := Open(t.Context(), c.settings)
		if err == nil || src != nil || errors.Is(err, never) != c.never {
			t.Errorf("%s: never %v: %v", what, errors.Is(err, never), err)
		}
	}
	if _, err := New(Config{Seeds: []string{"h:9092", ""}}); err == nil {
		t.Error("an empty address is none")
	}
}
