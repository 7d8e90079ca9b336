package kafkametadata

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

func entry(name string, source kmsg.ConfigSource, value *string) kmsg.DescribeConfigsResponseResourceConfig {
	c := kmsg.NewDescribeConfigsResponseResourceConfig()
	c.Name, c.Source, c.Value = name, source, value
	return c
}

// describing answers DescribeConfigs, each topic as of says.
func describing(req kmsg.Request, of func(topic string, r *kmsg.DescribeConfigsResponseResource)) *kmsg.DescribeConfigsResponse {
	resp := kmsg.NewPtrDescribeConfigsResponse()
	resp.Version = 4
	for _, asked := range req.(*kmsg.DescribeConfigsRequest).Resources {
		r := kmsg.NewDescribeConfigsResponseResource()
		r.ResourceType, r.ResourceName = asked.ResourceType, asked.ResourceName
		of(asked.ResourceName, &r)
		resp.Resources = append(resp.Resources, r)
	}
	return resp
}

// TestTopicConfigs: only what is set on the topic itself and has a value is shown; a topic that does not exist is absent, one that may not be read has an error of its own.
func TestTopicConfigs(t *testing.T) {
	f := &fakeBrokers{answer: func(_ int32, req kmsg.Request) (kmsg.Response, error) {
		return describing(req, func(topic string, r *kmsg.DescribeConfigsResponseResource) {
			switch topic {
			case "gone":
				r.ErrorCode = kerr.UnknownTopicOrPartition.Code
			case "secret":
				r.ErrorCode, r.ErrorMessage = kerr.TopicAuthorizationFailed.Code, kmsg.StringPtr("not for you")
			case "orders":
				for source := kmsg.ConfigSource(-1); source <= 8; source++ {
					r.Configs = append(r.Configs, entry(fmt.Sprint("from.", source), source, kmsg.StringPtr("v")))
				}
				r.Configs = append(r.Configs, entry("hidden", dynamicTopicConfig, nil), entry("empty", dynamicTopicConfig, kmsg.StringPtr("")))
			}
		}), nil
	}}
	got, err := f.client().TopicConfigs(t.Context(), []string{"orders", "gone", "secret", "bare", "orders"})
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"from.DYNAMIC_TOPIC_CONFIG": "v", "empty": ""}; !maps.Equal(got["orders"].Values, want) || got["orders"].Err != nil {
		t.Errorf("orders has %v, %v", got["orders"].Values, got["orders"].Err)
	}
	if c, ok := got["bare"]; !ok || len(c.Values) != 0 || c.Err != nil {
		t.Errorf("a topic without settings has %v", c)
	}
	if _, ok := got["gone"]; ok {
		t.Error("a topic that does not exist is there")
	}
	if err := got["secret"].Err; !errors.Is(err, kerr.TopicAuthorizationFailed) || !strings.Contains(err.Error(), "not for you") || got["secret"].Values != nil {
		t.Errorf("%v", got["secret"])
	}
	f.wantAsked(t, 1)
	if got, err := f.client().TopicConfigs(t.Context(), nil); err != nil || len(got) != 0 {
		t.Errorf("no topics: %v, %v", got, err)
	}
}

// What counts for a topic is its own setting, or else its brokers': both are told, under the names that were asked for.
func TestEffectiveConfigsHaveDefaults(t *testing.T) {
	f := &fakeBrokers{answer: func(_ int32, req kmsg.Request) (kmsg.Response, error) {
		for _, asked := range req.(*kmsg.DescribeConfigsRequest).Resources {
			if !slices.Equal(asked.ConfigNames, []string{"cleanup.policy"}) {
				t.Errorf("%s: asked for %v", asked.ResourceName, asked.ConfigNames)
			}
		}
		return describing(req, func(topic string, r *kmsg.DescribeConfigsResponseResource) {
			source, policy := kmsg.ConfigSourceStaticBrokerConfig, "compact"
			if topic == "own" {
				source, policy = kmsg.ConfigSourceDynamicTopicConfig, "delete"
			}
			r.Configs = append(r.Configs, entry("cleanup.policy", source, &policy))
		}), nil
	}}
	got, err := f.client().EffectiveConfigs(t.Context(), []string{"own", "bare"}, "cleanup.policy")
	if err != nil || got["own"].Values["cleanup.policy"] != "delete" || got["bare"].Values["cleanup.policy"] != "compact" {
		t.Errorf("%v, %v", got, err)
	}
}

// TestTopicConfigsAreReadInChunks: a thousand topics a request, the brokers in turn. A request that no broker answers is the error of its own topics.
func TestTopicConfigsAreReadInChunks(t *testing.T) {
	var sizes []int
	requests := 0
	f := &fakeBrokers{}
	f.answer = func(broker int32, req kmsg.Request) (kmsg.Response, error) {
		if requests++; requests > 3 {
			return nil, errSilent
		}
		sizes = append(sizes, len(req.(*kmsg.DescribeConfigsRequest).Resources))
		return describing(req, func(_ string, r *kmsg.DescribeConfigsResponseResource) {
			r.Configs = append(r.Configs, entry("retention.ms", dynamicTopicConfig, kmsg.StringPtr("1")))
		}), nil
	}
	var topics []string
	for i := range 3*mostRead + 7 {
		topics = append(topics, fmt.Sprintf("t%05d", i))
	}
	got, err := f.client().TopicConfigs(t.Context(), topics)
	if err != nil || len(got) != len(topics) {
		t.Fatalf("%d of %d topics, %v", len(got), len(topics), err)
	}
	f.wantAsked(t, 1, 2, 3, 1, 2, 3)
	read := 0
	for topic, c := range got {
		switch {
		case c.Err == nil && c.Values["retention.ms"] == "1":
			read++
		case !errors.Is(c.Err, errSilent):
			t.Fatalf("%s: %v", topic, c)
		}
	}
	if slices.Sort(sizes); read != sizes[0]+sizes[1]+sizes[2] || sizes[2] != mostRead || sizes[1] != mostRead || sizes[0] != mostRead && sizes[0] != 7 {
		t.Errorf("%d topics were read by requests for %v", read, sizes)
	}
	if _, err := f.client().TopicConfigs(t.Context(), topics); !errors.Is(err, errSilent) {
		t.Errorf("nobody answers: %v", err)
	}
	f.none = errSilent
	if _, err := f.client().TopicConfigs(t.Context(), topics); !errors.Is(err, errSilent) {
		t.Errorf("no brokers: %v", err)
	}
}

// TestTopicConfigsAreNotTakenForNone: what an answer leaves out, and an answer of so old a broker that it does not say where a setting comes from, is no topic without settings.
func TestTopicConfigsAreNotTakenForNone(t *testing.T) {
	f := &fakeBrokers{answer: func(_ int32, req kmsg.Request) (kmsg.Response, error) {
		resp := describing(req, func(string, *kmsg.DescribeConfigsResponseResource) {})
		resp.Resources = resp.Resources[:1]
		return resp, nil
	}}
	got, err := f.client().TopicConfigs(t.Context(), []string{"a", "b"})
	if err != nil || got["a"].Err != nil || got["b"].Err == nil {
		t.Errorf("%v, %v", got, err)
	}
	f.answer = func(_ int32, req kmsg.Request) (kmsg.Response, error) {
		resp := describing(req, func(string, *kmsg.DescribeConfigsResponseResource) {})
		resp.Version = 0
		return resp, nil
	}
	if got, err := f.client().TopicConfigs(t.Context(), []string{"a"}); !errors.Is(err, errNoSource) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestF65OneRefusedTopic: of 300 topics the broker does not know a setting of the 17th: it is reported with the broker's own message, the others are changed.
func TestF65OneRefusedTopic(t *testing.T) {
	const message = "Unknown topic config name: vendor.setting"
	done := map[string][]string{}
	f := &fakeBrokers{answer: func(_ int32, req kmsg.Request) (kmsg.Response, error) {
		resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
		if req.(*kmsg.IncrementalAlterConfigsRequest).ValidateOnly {
			t.Error("nothing would be changed")
		}
		for _, asked := range req.(*kmsg.IncrementalAlterConfigsRequest).Resources {
			r := kmsg.NewIncrementalAlterConfigsResponseResource()
			r.ResourceType, r.ResourceName = asked.ResourceType, asked.ResourceName
			for _, c := range asked.Configs {
				if c.Name == "vendor.setting" {
					r.ErrorCode, r.ErrorMessage = kerr.InvalidConfig.Code, kmsg.StringPtr(message)
				}
				text := "delete " + c.Name
				if c.Op == kmsg.IncrementalAlterConfigOpSet {
					text = c.Name + "=" + *c.Value
				}
				done[asked.ResourceName] = append(done[asked.ResourceName], text)
			}
			resp.Resources = append(resp.Resources, r)
		}
		return resp, nil
	}}
	changes := map[string]mirror.TopicConfigChange{"same": {}}
	for i := range 300 {
		changes[fmt.Sprint("t", i)] = mirror.TopicConfigChange{Set: map[string]string{"retention.ms": fmt.Sprint(i), "cleanup.policy": "compact"}, Delete: []string{"segment.bytes"}}
	}
	changes["t17"].Set["vendor.setting"] = "x"
	failed := f.client().AlterTopicConfigs(t.Context(), changes)
	if err := failed["t17"]; len(failed) != 1 || !errors.Is(err, kerr.InvalidConfig) || !strings.Contains(err.Error(), message) || !strings.Contains(err.Error(), "t17") {
		t.Errorf("%v", failed)
	}
	if want := []string{"cleanup.policy=compact", "retention.ms=5", "delete segment.bytes"}; !slices.Equal(done["t5"], want) || len(done) != 300 {
		t.Errorf("%d topics, t5: %v", len(done), done["t5"])
	}
	f.wantAsked(t, 1)
}

// TestAlterTopicConfigsInChunks: no request has more topics or more settings than a controller takes at once; where a broker does not answer, the next one is asked.
func TestAlterTopicConfigsInChunks(t *testing.T) {
	many := map[string]string{}
	for i := range mostChanges - 1 {
		many[fmt.Sprint("k", i)] = "v"
	}
	changes := map[string]mirror.TopicConfigChange{"a-many": {Set: many}, "b-many": {Set: many}}
	for i := range mostAltered + 1 {
		changes[fmt.Sprintf("t%04d", i)] = mirror.TopicConfigChange{Delete: []string{"k"}}
	}
	var sizes []int
	f := &fakeBrokers{answer: func(broker int32, req kmsg.Request) (kmsg.Response, error) {
		resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
		asked := req.(*kmsg.IncrementalAlterConfigsRequest).Resources
		entries := 0
		for _, a := range asked {
			entries += len(a.Configs)
			r := kmsg.NewIncrementalAlterConfigsResponseResource()
			r.ResourceName = a.ResourceName
			resp.Resources = append(resp.Resources, r)
		}
		if len(asked) > mostAltered || entries > mostChanges {
			t.Errorf("%d topics and %d settings in one request", len(asked), entries)
		}
		if broker == 2 {
			return nil, errSilent
		}
		sizes = append(sizes, len(asked))
		return resp, nil
	}}
	failed := f.client().AlterTopicConfigs(t.Context(), changes)
	if len(failed) != 0 || !slices.Equal(sizes, []int{1, 2, mostAltered}) {
		t.Errorf("%d failed, requests for %v topics", len(failed), sizes)
	}
	f.none = errSilent
	if failed := f.client().AlterTopicConfigs(t.Context(), changes); len(failed) != len(changes) {
		t.Errorf("no brokers: %d of %d failed", len(failed), len(changes))
	}
}

// TestRefusalsOfSettings: what a broker refused was not done, and the codes that may be one setting's are told from the others; where a broker did not answer before, nobody knows.
func TestRefusalsOfSettings(t *testing.T) {
	for _, c := range []struct {
		err              *kerr.Error
		refused, setting bool
	}{
		{kerr.InvalidConfig, true, true}, {kerr.InvalidRequest, true, true}, {kerr.PolicyViolation, true, true},
		{kerr.TopicAuthorizationFailed, true, false}, {kerr.UnknownTopicOrPartition, true, false},
		{kerr.RequestTimedOut, false, false}, {kerr.UnknownServerError, false, false},
	} {
		for _, silent := range []bool{false, true} {
			asked := 0
			f := &fakeBrokers{answer: func(_ int32, req kmsg.Request) (kmsg.Response, error) {
				if asked++; silent && asked == 1 {
					return nil, errSilent
				}
				resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
				r := kmsg.NewIncrementalAlterConfigsResponseResource()
				r.ResourceType, r.ResourceName, r.ErrorCode = kmsg.ConfigResourceTypeTopic, "t", c.err.Code
				resp.Resources = append(resp.Resources, r)
				return resp, nil
			}}
			err := f.client().AlterTopicConfigs(t.Context(), map[string]mirror.TopicConfigChange{"t": {Delete: []string{"retention.ms"}}})["t"]
			var refusal *mirror.RefusedError
			if is := errors.As(err, &refusal); !errors.Is(err, c.err) || is != (c.refused && !silent) || is && refusal.Setting != c.setting {
				t.Errorf("silent before: %t: %#v", silent, err)
			}
		}
	}
}
