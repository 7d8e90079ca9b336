package mirror

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Settings that verbs read themselves.
const (
	bootstrapSetting            = "bootstrap.servers"
	sourceClusterIDSetting      = "source.cluster.id"
	destinationClusterIDSetting = "mirror.destination.cluster.id"
)

// topicFilters are a mirror's settings with the patterns of a request merged in, and what its named topics change besides.
type topicFilters struct {
	settings Settings
	filter   Filter
	join     []string // patterns for the include list
	leave    []string // patterns that leave the exclude list
}

// mergeFilters merges patterns into the effective filters (spec §1.6 and decision 13).
func (a *Admin) mergeFilters(s Settings, include, exclude []string) (*topicFilters, error) {
	merged, err := s.MergeTopicPatterns(include, exclude)
	if err != nil {
		return nil, a.badSetting(err, InvalidRequest)
	}
	filter, err := merged.TopicFilter()
	if err != nil {
		return nil, a.badSetting(err, InvalidRequest)
	}
	return &topicFilters{settings: merged, filter: filter}, nil
}

// badSetting is the *Error of a setting's error: a pattern that is none has a code of its own.
func (a *Admin) badSetting(err error, code Code) error {
	if errors.Is(err, ErrPattern) {
		code = InvalidRegularExpression
	}
	return a.failed(code, "", err, "nothing has changed")
}

// excludes returns a pattern that excludes the topic, "" if none does. A topic that is named is not excluded by its own name.
func (f *topicFilters) excludes(topic string, named bool) string {
	if !f.filter.Excludes(topic) {
		return ""
	}
	for _, p := range settingList(f.settings.Effective(topicsExcludeSetting)) {
		if named && isName(p, topic) {
			continue
		}
		if re, err := compilePatterns([]string{p}); err == nil && re.matches(topic) {
			return p
		}
	}
	return ""
}

// take notes that a named topic is started: it leaves the exclude list, and joins the include list if that is not empty and does not have it. What joins is its name and no
// other topic's: a '.' is any character in a pattern.
func (f *topicFilters) take(topic string) {
	f.leave = append(f.leave, topic)
	if !f.filter.FindsNothing() && !f.filter.Includes(topic) {
		f.join = append(f.join, regexp.QuoteMeta(topic))
	}
}

func isName(pattern, topic string) bool {
	return pattern == topic || pattern == regexp.QuoteMeta(topic)
}

// store writes the filters into the mirror's settings if they are others than those that take effect, and says what it changed, and what they are now.
func (f *topicFilters) store(s *ControlState, entry MirrorEntry) (changes []SettingChange, filters []string) {
	lists := map[string][]string{
		topicsIncludeSetting: settingList(f.settings.Effective(topicsIncludeSetting)),
		topicsExcludeSetting: settingList(f.settings.Effective(topicsExcludeSetting)),
	}
	for _, p := range f.join {
		if !slices.Contains(lists[topicsIncludeSetting], p) {
			lists[topicsIncludeSetting] = append(lists[topicsIncludeSetting], p)
		}
	}
	lists[topicsExcludeSetting] = slices.DeleteFunc(lists[topicsExcludeSetting], func(p string) bool {
		return slices.ContainsFunc(f.leave, func(topic string) bool { return isName(p, topic) })
	})
	after := maps.Clone(entry.Settings)
	if after == nil {
		after = Settings{}
	}
	for _, name := range []string{topicsIncludeSetting, topicsExcludeSetting} {
		now := strings.Join(lists[name], ",")
		filters = append(filters, now)
		if now != strings.Join(settingList(entry.Settings.Effective(name)), ",") {
			f.settings[name], after[name] = now, now
		}
	}
	if changes = changedSettings(entry.Settings, after); len(changes) == 0 {
		return nil, filters
	}
	entry.Settings = f.settings
	s.SetMirror(entry)
	return changes, filters
}

// checkPatterns refuses what cannot be in a list of patterns.
func (a *Admin) checkPatterns(include, exclude []string) error {
	_, err := Settings{}.MergeTopicPatterns(include, exclude)
	if err != nil {
		return a.badSetting(err, InvalidRequest)
	}
	return nil
}
