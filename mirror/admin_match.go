package mirror

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// TopicLister is what an AdminConfig.Destination may have besides: it names its topics, without internal ones.
type TopicLister interface {
	TopicNames(ctx context.Context) ([]string, error)
}

// MatchTopics returns the topics of the mirror whose whole name a pattern matches, sorted; none is no error. unmirrored: also those of the destination that are in no mirror, as a first failback
// brings them back; without a Destination that is a TopicLister there are none. For verbs that have no patterns of their own. Errors: InvalidRegularExpression; the Control's; the destination's.
func (a *Admin) MatchTopics(ctx context.Context, pattern string, unmirrored bool) ([]string, error) {
	filter, err := NewFilter([]string{pattern}, nil)
	if err != nil {
		return nil, a.failed(InvalidRegularExpression, "", err, "nothing has changed")
	}
	c, err := a.begin(ctx, "match topics", false, Intent{})
	if err != nil {
		return nil, err
	}
	found := slices.DeleteFunc(c.members(&c.known, nil), func(topic string) bool { return !filter.Includes(topic) })
	if lister, ok := a.cfg.Destination.(TopicLister); ok && unmirrored {
		names, err := lister.TopicNames(ctx)
		if err != nil {
			return nil, fmt.Errorf("mirror %s: listing the destination's topics: %w", a.cfg.Mirror, err)
		}
		for _, name := range names {
			if _, wanted := c.known.Topic(name); !wanted && filter.Includes(name) && !strings.HasPrefix(name, "__") {
				found = append(found, name)
			}
		}
	}
	slices.Sort(found)
	return found, nil
}
