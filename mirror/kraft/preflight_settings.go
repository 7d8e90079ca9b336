package kraft

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/mirror"
)

// logins looks at whether the brokers' logins can be checked here.
func (p *preflight) logins() {
	s := p.d.cfg.Security
	if s.Protocol != "SASL_PLAINTEXT" && s.Protocol != "SASL_SSL" {
		return
	}
	mechanisms := map[string]bool{}
	for _, b := range p.brokers {
		if m := b.configs["sasl.mechanism.inter.broker.protocol"]; m != "" {
			mechanisms[m] = true
		}
	}
	for m := range mechanisms {
		switch m {
		case "PLAIN":
			if s.PlainPassword == nil {
				p.misfit(AboutOwnListener, "set it", "brokers log in by PLAIN, and Security.PlainPassword is not set: their passwords cannot be checked")
			}
		case "SCRAM-SHA-256", "SCRAM-SHA-512":
			number := int8(1)
			if m == "SCRAM-SHA-512" {
				number = 2
			}
			for _, principal := range s.Brokers {
				user := strings.TrimPrefix(principal, "User:")
				known := false
				p.d.meta.look(func(im *clustermetadata.Image) { _, known = im.Scram(number, user) })
				if !known {
					p.addf(AboutOwnListener, Blocks, "name the brokers' own user in Security.Brokers", "brokers log in by %s, and the cluster's metadata has no such user %q", m, user)
				}
			}
		default:
			p.addf(AboutOwnListener, Blocks, "give the inter-broker listener PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or certificates", "brokers log in by %s, which this process's listener does not speak", m)
		}
	}
}

// settings looks at what the cluster's settings mean for mirrored topics.
func (p *preflight) settings() {
	cfg := &p.d.cfg
	listener := ""
	if ns := p.listenerNames(); len(ns) > 0 {
		listener = ns[0]
	}
	named := map[string]bool{}
	once := func(key string, s Severity, do, format string, args ...any) {
		if !named[key] {
			named[key] = true
			p.addf(AboutSettings, s, do, format, args...)
		}
	}
	wrongListener := func(do, format string, args ...any) {
		if !named["listener"] {
			named["listener"] = true
			p.misfit(AboutSettings, do, format, args...)
		}
	}
	for _, b := range p.brokers {
		c := b.configs
		if c == nil {
			continue
		}
		if n := cmp.Or(c["inter.broker.listener.name"], c["security.inter.broker.protocol"]); n != "" && listener != "" && n != listener {
			wrongListener("set ListenerName to that", "the inter-broker listener of broker %d is %s, and this process would register %s: brokers would not find it", b.broker.ID, n, listener)
		}
		if c[uncleanElection] == "true" {
			once("unclean", Warns, "set it to false", "%s is true at broker %d: mirrored topics get false for themselves, but after a failover an election may lose records", uncleanElection, b.broker.ID)
		}
		if v := c[minInSync]; v != "" && v != strconv.Itoa(cfg.MinInSyncReplicas) {
			once("isr", Fine, "", "%s is %s at broker %d and Config.MinInSyncReplicas %d: topics that are mirrored have 1 for themselves, and as many copies as Config says count as replicated; after the failover the topic's own value counts", minInSync, v, b.broker.ID, cfg.MinInSyncReplicas)
		}
		if c["remote.log.storage.system.enable"] == "true" {
			once("tiered", Warns, "mirror topics without remote.storage.enable", "tiered storage is on at broker %d: a topic with remote.storage.enable=true is neither created nor taken over", b.broker.ID)
		}
		if v := c["broker.session.timeout.ms"]; v != "" && v != strconv.FormatInt(int64(cfg.SessionTimeout/time.Millisecond), 10) {
			once("session", Warns, "set Config.SessionTimeout to what the controllers have", "broker.session.timeout.ms is %s at broker %d and Config.SessionTimeout %s: what counts is the controllers' value", v, b.broker.ID, cfg.SessionTimeout)
		}
		if n := len(strings.Split(cmp.Or(c["log.dirs"], c["log.dir"]), ",")); n > 1 {
			once("dirs", Fine, "", "broker %d has %d log directories, which makes no difference here", b.broker.ID, n)
		}
	}
	p.d.meta.look(func(im *clustermetadata.Image) {
		names := []string{""}
		for _, b := range im.Brokers() {
			names = append(names, fmt.Sprint(b.ID))
		}
		for _, name := range names {
			who := "all brokers"
			if name != "" {
				who = "broker " + name
			}
			if v, _ := im.Config(clustermetadata.BrokerResource, name, uncleanElection); v == "true" {
				once("unclean", Warns, "set it to false", "%s is set to true for %s: mirrored topics get false for themselves, but after a failover an election may lose records", uncleanElection, who)
			}
			for _, rate := range []string{"leader.replication.throttled.rate", "follower.replication.throttled.rate"} {
				if v, ok := im.Config(clustermetadata.BrokerResource, name, rate); ok {
					once(rate+name, Warns, "take it away when the reassignment that it was made for has ended", "%s is %s bytes/s for %s: followers copy mirrored topics no faster where a topic names them as throttled replicas", rate, v, who)
				}
			}
		}
	})
}

const tieredStorage = "remote.storage.enable"

// errTiered says why a topic with tiered storage (KIP-405) cannot be mirrored into a stock cluster: its older part is not in the copies that this process could serve or compare.
func errTiered(topic string) error {
	return fmt.Errorf("kraft: topic %s has %s=true: its older records are in a remote storage that this process does not know; mirror it without, or not at all: %w", topic, tieredStorage, mirror.ErrRemoteStorage)
}

// tiered refuses a topic of the cluster that has tiered storage.
func (d *Destination) tiered(topic string) (err error) {
	d.meta.look(func(im *clustermetadata.Image) {
		if v, _ := im.Config(clustermetadata.TopicResource, topic, tieredStorage); v == "true" {
			err = errTiered(topic)
		}
	})
	return err
}
