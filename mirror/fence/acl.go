package fence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkametadata"
	"github.com/clustermirror/clustermirror/mirror"
)

// ACL returns a fence of access rules: DENY User:* to WRITE, on each topic. The cluster needs an authorizer, and the client's user DESCRIBE and ALTER on the cluster. Super users pass. A rule that was
// there before stays when the fence is lowered. The client is the caller's.
//
// A topic that no rule is about is refused: brokers that let everybody in there (allow.everyone.if.no.acl.found) would let in nobody with the first rule, the mirror neither.
func ACL(client *kgo.Client) mirror.Fence {
	return aclFence{onCluster: onCluster{client}, rules: kafkametadata.New(brokers{client}, requestBound)}
}

type aclFence struct {
	onCluster
	rules  *kafkametadata.Client
	memory aclMemory
}

// aclMemory are the topics that had the rule before.
type aclMemory struct {
	Had []string `json:"had,omitempty"`
}

var (
	_ mirror.FenceMemory  = aclFence{}
	_ mirror.FenceRules   = aclFence{}
	_ mirror.FenceAdvice  = aclFence{}
	_ mirror.FenceCluster = aclFence{}
)

func (f aclFence) String() string { return "access rules: DENY User:* to WRITE" }

func denial(topic string) mirror.ACL {
	return mirror.ACL{ResourceType: "TOPIC", ResourceName: topic, PatternType: "LITERAL", Principal: "User:*", Host: "*", Operation: "WRITE", Permission: "DENY"}
}

// Look says which topics have the rule.
func (f aclFence) Look(ctx context.Context, topics []string) (string, error) {
	all, err := f.list(ctx)
	if err != nil {
		return "", err
	}
	var m aclMemory
	var bare []string
	for _, topic := range topics {
		switch {
		case slices.Contains(all, denial(topic)):
			m.Had = append(m.Had, topic)
		case !slices.ContainsFunc(all, func(a mirror.ACL) bool { return about(a, topic) }):
			bare = append(bare, topic)
		}
	}
	if len(bare) > 0 {
		return "", fmt.Errorf("no access rule is about topic %s: a first one, which denies, would keep out who may read too; let the mirror and the readers in by rules of their own first, or use another fence",
			strings.Join(bare[:min(len(bare), 5)], ", "))
	}
	b, err := json.Marshal(m)
	return string(b), err
}

// about says whether a rule is about a topic.
func about(a mirror.ACL, topic string) bool {
	return a.ResourceType == "TOPIC" && (a.ResourceName == topic || a.ResourceName == "*" && a.PatternType == "LITERAL" || a.PatternType == "PREFIXED" && strings.HasPrefix(topic, a.ResourceName))
}

func (f aclFence) list(ctx context.Context) ([]mirror.ACL, error) {
	all, err := f.rules.ACLs(ctx)
	if errors.Is(err, mirror.ErrNoAuthorizer) {
		return nil, fmt.Errorf("the source has no authorizer, so rules keep nobody out; use another fence: %w", err)
	}
	return all, err
}

// With returns the fence that leaves alone what was there.
func (f aclFence) With(memory string) (mirror.Fence, error) {
	f.memory = aclMemory{}
	if memory == "" {
		return f, nil
	}
	if err := json.Unmarshal([]byte(memory), &f.memory); err != nil {
		return nil, fmt.Errorf("what is recorded of the rules that were there cannot be read: %w", err)
	}
	return f, nil
}

// Rules are those that the fence makes.
func (f aclFence) Rules(topics []string) (rules []mirror.ACL) {
	for _, topic := range topics {
		if !slices.Contains(f.memory.Had, topic) {
			rules = append(rules, denial(topic))
		}
	}
	return rules
}

// raiseBound is how long brokers may take to hear of the rules.
const raiseBound = 30 * time.Second

// Raise makes the rules, and waits until every broker has them: each decides by what it has heard of the cluster's metadata.
func (f aclFence) Raise(ctx context.Context, topics []string) error {
	ctx, stop := context.WithTimeout(ctx, raiseBound)
	defer stop()
	if err := errors.Join(f.rules.CreateACLs(ctx, f.Rules(topics))...); err != nil {
		return err
	}
	for {
		err := f.inForce(ctx, topics)
		if err == nil {
			return nil
		}
		if !pause(ctx, 200*time.Millisecond) {
			return fmt.Errorf("not every broker has the rules after %s: %w", raiseBound, err)
		}
	}
}

func (f aclFence) inForce(ctx context.Context, topics []string) error {
	ids, err := brokers{f.client}.Brokers(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		bounded, stop := context.WithTimeout(ctx, requestBound)
		rules, err := kafkametadata.New(oneBroker{brokers{f.client}, id}, requestBound).ACLs(bounded)
		stop()
		if err != nil {
			return fmt.Errorf("broker %d: %w", id, err)
		}
		has := map[mirror.ACL]bool{}
		for _, a := range rules {
			has[a] = true
		}
		for _, topic := range topics {
			if !has[denial(topic)] {
				return fmt.Errorf("broker %d has not heard of the rule on topic %s yet", id, topic)
			}
		}
	}
	return nil
}

// oneBroker is a cluster of which one broker is asked.
type oneBroker struct {
	brokers
	id int32
}

func (b oneBroker) Brokers(context.Context) ([]int32, error) { return []int32{b.id}, nil }

func (b oneBroker) Ask(ctx context.Context, _ int32, req kmsg.Request) (kmsg.Response, error) {
	return b.client.Broker(int(b.id)).RetriableRequest(ctx, req)
}

// Lower takes out the rules that the fence made.
func (f aclFence) Lower(ctx context.Context, topics []string) error {
	err := errors.Join(f.rules.DeleteACLs(ctx, f.Rules(topics))...)
	if errors.Is(err, mirror.ErrNoAuthorizer) {
		return nil // nothing is forbidden there
	}
	return err
}

// Limits says whom the rules do not stop.
func (f aclFence) Limits() []string {
	return []string{"super users of the source pass, and what brokers write by themselves: markers of transactions"}
}

// TakeDown are the lines that take the rules out.
func (f aclFence) TakeDown(topics []string) []string {
	var lines []string
	if rules := f.Rules(topics); len(rules) > 0 {
		line := "kafka-acls.sh --bootstrap-server SOURCE:PORT --remove --force --deny-principal 'User:*' --operation Write"
		for _, a := range rules {
			line += " --topic " + a.ResourceName
		}
		lines = append(lines, line)
	}
	if len(f.memory.Had) > 0 {
		lines = append(lines, "the rule was there before on "+strings.Join(f.memory.Had, ", ")+", and is nothing of the fence")
	}
	return lines
}
