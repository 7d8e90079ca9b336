package kraft

import (
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
)

// TestConfigIsChecked: what cannot work is said before anything is asked, with what to write instead.
func TestConfigIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		want   string // "" for none
	}{
		"all is well":                     {func(*Config) {}, ""},
		"a short session":                 {func(c *Config) { c.SessionTimeout = 4001 * time.Millisecond }, ""},
		"an address of version 6":         {func(c *Config) { c.Controllers = []string{"[::1]:9093"} }, ""},
		"a heartbeat of half a session":   {func(c *Config) { c.SessionTimeout = 4 * time.Second }, "less than half"},
		"a slow heartbeat":                {func(c *Config) { c.HeartbeatInterval = 10 * time.Second }, "less than half"},
		"a negative heartbeat":            {func(c *Config) { c.HeartbeatInterval = -1 }, "leave them 0"},
		"a negative session":              {func(c *Config) { c.SessionTimeout = -1 }, "leave them 0"},
		"a negative bound":                {func(c *Config) { c.RequestTimeout = -1 }, "leave it 0"},
		"itself as a peer":                {func(c *Config) { c.Peers = []int32{5, 9999} }, "name the others only"},
		"a controller without a port":     {func(c *Config) { c.Controllers = []string{"a:1", "b"} }, `"b"; an address is host:port`},
		"a controller with an empty port": {func(c *Config) { c.Controllers = []string{"a:"} }, "host:port"},
		"a controller without a host":     {func(c *Config) { c.Controllers = []string{":9093"} }, "host:port"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{NodeID: 9999, Controllers: []string{"a:9093"}, Listen: ":0", Folder: "f", Remember: keyedlog.NewMemory()}
			c.change(&cfg)
			switch _, err := cfg.withDefaults(); {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v", err)
			}
		})
	}
}
