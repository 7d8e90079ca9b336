package mirror

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// ErrPattern: a pattern is no regular expression of RE2's syntax (Kafka's INVALID_REGULAR_EXPRESSION, 128).
var ErrPattern = errors.New("is no regular expression (RE2)")

// Filter is which topics of a source are mirrored: included and not excluded. Its zero value matches nothing. Safe for concurrent use.
type Filter struct {
	include, exclude patternList
}

// patternList are patterns that each have to match a whole name. Whoever reads patterns reads them as such a list, so that two readers cannot understand them differently.
// Each is compiled by itself: joined into one, a flag or a quotation of one would reach into the next.
type patternList []*regexp.Regexp

// matches says whether one of the patterns matches the whole name.
func (l patternList) matches(name string) bool {
	return slices.ContainsFunc(l, func(p *regexp.Regexp) bool {
		at := p.FindStringIndex(name) // the longest of those that begin first: a whole match is this one
		return at != nil && at[0] == 0 && at[1] == len(name)
	})
}

// Matches says whether a topic is found and mirrored by itself. Internal names, those that begin with "__", never are: what they hold belongs to its own cluster (F-71).
func (f Filter) Matches(topic string) bool {
	return f.Includes(topic) && !f.Excludes(topic) && !strings.HasPrefix(topic, "__")
}

// Includes says whether the include list names a topic; an empty one names none.
func (f Filter) Includes(topic string) bool { return f.include.matches(topic) }

// Excludes says whether the exclude list names a topic.
func (f Filter) Excludes(topic string) bool { return f.exclude.matches(topic) }

// FindsNothing says whether the include list is empty: no topic is found by itself, and a topic that is started by its name need not match.
func (f Filter) FindsNothing() bool { return len(f.include) == 0 }

// NewFilter makes a filter of two lists of patterns; one pattern of a list has to match a whole name. Errors: ErrPattern, with the pattern.
func NewFilter(include, exclude []string) (f Filter, err error) {
	if f.include, err = compilePatterns(include); err != nil {
		return Filter{}, err
	}
	if f.exclude, err = compilePatterns(exclude); err != nil {
		return Filter{}, err
	}
	return f, nil
}

// compilePatterns: nil for an empty list. A dot is any character, also the end of a line, which the name of a group may hold; (?-s) in a pattern takes that back. The error names the pattern.
func compilePatterns(list []string) (patternList, error) {
	var all patternList
	for _, p := range list {
		if p == "" {
			return nil, fmt.Errorf("an empty pattern %w; leave it out", ErrPattern)
		}
		_, err := regexp.Compile(p) // by itself: an error speaks of what somebody wrote
		var compiled *regexp.Regexp
		if err == nil {
			compiled, err = regexp.Compile("(?s)" + p) // in front, not around it: a quotation (\Q) may be left open
		}
		if err != nil {
			return nil, fmt.Errorf("pattern %q %w: %w", p, ErrPattern, err)
		}
		compiled.Longest()
		all = append(all, compiled)
	}
	return all, nil
}

// TopicFilter is the effective filter of topics. Errors: a *SettingError that is ErrPattern.
func (s Settings) TopicFilter() (Filter, error) {
	include, err := s.patterns(topicsIncludeSetting)
	if err != nil {
		return Filter{}, err
	}
	exclude, err := s.patterns(topicsExcludeSetting)
	return Filter{include, exclude}, err
}

func (s Settings) patterns(name string) (patternList, error) {
	value := s.Effective(name)
	p, err := compilePatterns(settingList(value))
	if err != nil {
		return nil, &SettingError{Setting: name, Value: value, Problem: err.Error(), Err: err}
	}
	return p, nil
}

// GroupFilter is which groups of a source are followed: included and not excluded, share groups too. Unlike topics, an empty include list names all of them, and a name that begins with
// "__" is like any other. Its zero value matches everything. Safe for concurrent use.
type GroupFilter struct {
	include, exclude patternList
}

// Matches says whether a group is followed.
func (f GroupFilter) Matches(group string) bool {
	return (len(f.include) == 0 || f.include.matches(group)) && !f.exclude.matches(group)
}

// nothing says that no group is followed, as far as that can be seen without names: a pattern that is excluded is any name's.
func (f GroupFilter) nothing() bool {
	return slices.ContainsFunc(f.exclude, func(p *regexp.Regexp) bool {
		return slices.Contains([]string{".*", ".+"}, strings.TrimPrefix(p.String(), "(?s)"))
	})
}

// GroupFilter is the effective filter of groups. Errors: a *SettingError that is ErrPattern.
func (s Settings) GroupFilter() (GroupFilter, error) {
	include, err := s.patterns(groupsIncludeSetting)
	if err != nil {
		return GroupFilter{}, err
	}
	exclude, err := s.patterns(groupsExcludeSetting)
	return GroupFilter{include, exclude}, err
}

// PropertyExcluded returns what says whether a topic's setting is not followed: mirror.topic.properties.exclude names it, or it belongs to tiered storage, which a cluster has of its
// own or not at all. The function is safe for concurrent use. Errors: a *SettingError that is ErrPattern.
func (s Settings) PropertyExcluded() (func(name string) bool, error) {
	exclude, err := s.patterns(propertiesExcludeSetting)
	if err != nil {
		return nil, err
	}
	return func(name string) bool {
		return strings.HasPrefix(name, "remote.") || strings.HasPrefix(name, "local.retention.") || exclude.matches(name)
	}, nil
}

// MergeTopicPatterns returns a copy of the settings in which these patterns are in one topic filter and no longer in the other (KIP-1279, spec §1.6). It starts from the effective
// filters, so that the first merge does not lose the default exclude (spec decision 13). A filter that nothing changes is not stored. Errors: a *SettingError, which
// is ErrPattern for a pattern that is none; one in both lists, and one with a comma, which separates patterns in a setting, are refused too.
func (s Settings) MergeTopicPatterns(include, exclude []string) (Settings, error) {
	next, err := s.Canonical()
	if err != nil {
		return nil, err
	}
	for _, side := range []struct {
		name         string
		add, take    []string
		otherSetting string
	}{{topicsIncludeSetting, include, exclude, topicsExcludeSetting}, {topicsExcludeSetting, exclude, include, topicsIncludeSetting}} {
		was := settingList(s.Effective(side.name))
		now := slices.DeleteFunc(slices.Clone(was), func(p string) bool { return slices.Contains(side.take, p) })
		for _, p := range side.add {
			refuse := func(problem string, err error) (Settings, error) {
				return nil, &SettingError{Setting: side.name, Value: p, Problem: problem, Err: err}
			}
			if slices.Contains(side.take, p) {
				return refuse("is to be in "+side.otherSetting+" at the same time; choose one", nil)
			}
			if _, err := compilePatterns([]string{p}); err != nil {
				return refuse(err.Error(), err)
			}
			if strings.Contains(p, ",") || strings.TrimSpace(p) != p {
				return refuse("a pattern in a list holds no comma, and no blank at its ends; write it another way", nil)
			}
			if !slices.Contains(now, p) {
				now = append(now, p)
			}
		}
		if !slices.Equal(was, now) {
			next[side.name] = strings.Join(now, ",")
		}
	}
	return next, nil
}

// TopicSets are the sets of topics that belong together, by name; a Filter's Matches says who is in one. Errors: a *SettingError for the first set that cannot be read.
func (s Settings) TopicSets() (map[string]Filter, error) {
	sets := make(map[string]Filter)
	for _, name := range slices.Sorted(maps.Keys(s)) {
		set, ok := strings.CutPrefix(name, topicSetPrefix)
		if !ok {
			continue
		}
		if _, known := lookUpSetting(name); !known {
			return nil, &SettingError{Setting: name, Problem: unknownSetting(name)}
		}
		include, err := s.patterns(name)
		if err != nil {
			return nil, err
		}
		sets[set] = Filter{include: include}
	}
	return sets, nil
}
