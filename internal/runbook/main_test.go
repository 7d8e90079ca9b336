package runbook

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
)

var update = flag.Bool("update", false, "write what is printed into the pages")

// patience is the longest that a command which only looks is repeated until it shows what its page says, and that a command in the background has for that.
const patience = 30 * time.Second

var lender lives.Keeper

func TestMain(m *testing.M) {
	flag.Parse()
	lives.Bound = 40 * time.Second
	code := m.Run()
	lender.End()
	os.Exit(code)
}

// appPassword is that of the user app, who writes as applications do: by a listener that asks for a name, so that access rules count for him.
const appPassword = "app-secret"

// lend is a cluster by its name: "primary" and "standby" are shared by pages, others are a page's own, that does not start again what it kills. They have one broker, those with "three" in the name three.
func lend(t *testing.T, name string) *kafkatest.Cluster {
	t.Helper()
	brokers := 1
	if strings.Contains(name, "three") {
		brokers = 3
	}
	return lender.Lend(t, name, kafkatest.Options{
		Brokers: brokers, HeapMB: 320, Authorizer: true, Proxied: strings.Contains(name, "balanced"), Listeners: map[string]kafkatest.Security{"LOGIN": {SASL: "PLAIN", Users: map[string]string{"app": appPassword}}},
		Config: map[string]string{"replica.fetch.wait.max.ms": "200", "group.initial.rebalance.delay.ms": "0"},
	})
}
