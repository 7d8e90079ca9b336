package fence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

// producerRate is Kafka's name of the quota.
const producerRate = "producer_byte_rate"

// Quota returns a fence for a cluster without an authorizer: the quota of bytes that producers without one of their own have is set to 1 in a second, for every topic of the cluster. It is weak. A
// broker takes a write and lets the producer wait afterwards, so each may write something now and then; a promotion stops only when for PromoteOptions.Quiet nobody does, and is never PROVED: who writes
// more rarely, or has a quota of his own, may write behind the last look. The client's user needs
// DESCRIBE_CONFIGS and ALTER_CONFIGS on the cluster. The client is the caller's.
func Quota(client *kgo.Client) mirror.Fence { return quotaFence{onCluster: onCluster{client}} }

type quotaFence struct {
	onCluster
	memory quotaMemory
}

// quotaMemory are the quotas that were there, by entity; one that is absent was not set.
type quotaMemory struct {
	Was map[string]float64 `json:"was,omitempty"`
}

var (
	_ mirror.FenceMemory  = quotaFence{}
	_ mirror.FenceAdvice  = quotaFence{}
	_ mirror.FenceCluster = quotaFence{}
	_ mirror.FenceSlows   = quotaFence{}
)

// defaults are the entities whose quotas are those of everybody without one of his own, by what kafka-configs.sh calls them.
var defaults = []struct {
	name string
	of   []string
}{
	{"--user-defaults", []string{"user"}},
	{"--client-defaults", []string{"client-id"}},
	{"--user-defaults --client-defaults", []string{"user", "client-id"}},
}

func (f quotaFence) String() string {
	return "quotas: producers without a quota of their own get 1 byte in a second"
}

// Look says which quotas are set.
func (f quotaFence) Look(ctx context.Context, _ []string) (string, error) {
	m := quotaMemory{Was: map[string]float64{}}
	for _, d := range defaults {
		var components []kadm.DescribeClientQuotaComponent
		for _, of := range d.of {
			components = append(components, kadm.DescribeClientQuotaComponent{Type: of, MatchType: kmsg.QuotasMatchTypeDefault})
		}
		found, err := kadm.NewClient(f.client).DescribeClientQuotas(ctx, true, components)
		if err != nil {
			return "", fmt.Errorf("looking at quotas of the source: %w", err)
		}
		for _, q := range found {
			for _, v := range q.Values {
				if v.Key == producerRate {
					m.Was[d.name] = v.Value
				}
			}
		}
	}
	b, err := json.Marshal(m)
	return string(b), err
}

// With returns the fence that puts back what was there.
func (f quotaFence) With(memory string) (mirror.Fence, error) {
	f.memory = quotaMemory{}
	if memory == "" {
		return f, nil
	}
	if err := json.Unmarshal([]byte(memory), &f.memory); err != nil {
		return nil, fmt.Errorf("what is recorded of the quotas that were there cannot be read: %w", err)
	}
	return f, nil
}

// Raise sets the quotas.
func (f quotaFence) Raise(ctx context.Context, _ []string) error {
	return f.alter(ctx, func(string) kadm.AlterClientQuotaOp { return kadm.AlterClientQuotaOp{Key: producerRate, Value: 1} })
}

// Lower sets them to what they were.
func (f quotaFence) Lower(ctx context.Context, _ []string) error {
	return f.alter(ctx, func(name string) kadm.AlterClientQuotaOp {
		was, set := f.memory.Was[name]
		return kadm.AlterClientQuotaOp{Key: producerRate, Value: was, Remove: !set}
	})
}

func (f quotaFence) alter(ctx context.Context, to func(name string) kadm.AlterClientQuotaOp) error {
	var entries []kadm.AlterClientQuotaEntry
	for _, d := range defaults {
		e := kadm.AlterClientQuotaEntry{Ops: []kadm.AlterClientQuotaOp{to(d.name)}}
		for _, of := range d.of {
			e.Entity = append(e.Entity, kadm.ClientQuotaEntityComponent{Type: of})
		}
		entries = append(entries, e)
	}
	altered, err := kadm.NewClient(f.client).AlterClientQuotas(ctx, entries)
	for _, a := range altered {
		if a.Err != nil {
			err = errors.Join(err, fmt.Errorf("quota of %s: %w %s", a.Entity, a.Err, a.ErrMessage))
		}
	}
	if err != nil {
		return fmt.Errorf("changing quotas of the source: %w", err)
	}
	return nil
}

// OnlySlows is true.
func (f quotaFence) OnlySlows() bool { return true }

// Limits says whom the quotas do not stop.
func (f quotaFence) Limits() []string {
	return []string{
		"a quota forbids nothing: a broker takes a write and lets the producer wait behind it, so what was quiet may be written to again",
		"users and clients with a quota of their own pass",
		"producers of other topics of the source are slowed down too",
	}
}

// TakeDown are the lines that put the quotas back.
func (f quotaFence) TakeDown([]string) (lines []string) {
	for _, d := range defaults {
		change := "--delete-config " + producerRate
		if was, set := f.memory.Was[d.name]; set {
			change = fmt.Sprintf("--add-config %s=%v", producerRate, was)
		}
		lines = append(lines, fmt.Sprintf("kafka-configs.sh --bootstrap-server SOURCE:PORT --alter %s %s", d.name, change))
	}
	return lines
}
