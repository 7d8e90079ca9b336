package mirror

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/clustermirror/clustermirror/internal/closest"
	"github.com/clustermirror/clustermirror/internal/secret"
)

// SettingError is one thing that is wrong with a setting. It is an *Error with InvalidConfig in the sense of errors.Is, and ErrPattern where a pattern is what is wrong.
type SettingError struct {
	Setting string
	Value   string // as given; "[hidden]" for a secret, "" where the value is not what is wrong
	Problem string // what is wrong, and what is valid
	Err     error  // the cause, if any
}

func (e *SettingError) Error() string {
	s := "setting " + e.Setting
	if e.Value != "" {
		s += fmt.Sprintf(" = %q", e.Value)
	}
	return s + ": " + e.Problem
}

func (e *SettingError) Unwrap() error { return e.Err }

// Is finds InvalidConfig.
func (e *SettingError) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == InvalidConfig
}

// Check checks names and values of all settings, those of one level and of others alike when no level is given. Settings of another level are faults: MirrorSetting allows
// connection settings too. Every fault is in the error (errors.Join of *SettingError, by name); none holds a value of a secret, or of a setting that is not known.
func (s Settings) Check(levels ...SettingLevel) error { return joinFaults(s.faults(levels...)) }

func (s Settings) faults(levels ...SettingLevel) []*SettingError {
	faults := s.conflicts()
	for name, value := range s {
		d, known := lookUpSetting(name)
		if !known {
			faults = append(faults, &SettingError{Setting: name, Problem: unknownSetting(name)})
			continue
		}
		allowed := len(levels) == 0 || slices.Contains(levels, d.Level) || d.Level == ConnectionSetting && slices.Contains(levels, MirrorSetting)
		if !allowed {
			faults = append(faults, &SettingError{Setting: name, Problem: elsewhere(d.Level)})
			continue
		}
		if f := d.check(name, value); f != nil {
			faults = append(faults, f)
		}
	}
	return faults
}

// elsewhere says where a setting belongs that is not where it was given.
func elsewhere(level SettingLevel) string {
	if level == NodeSetting {
		return "belongs to a node, not here: each process has its own, kafka-mirror in the file of --command-config"
	}
	return "belongs to a mirror, not here: give it when the mirror is created, or alter it"
}

// check checks one value; nil is fine.
func (d setting) check(name, value string) *SettingError {
	shown := value
	if d.Secret {
		shown = hiddenValue
	}
	if !utf8.ValidString(value) {
		return &SettingError{Setting: name, Problem: "is not UTF-8"}
	}
	if f := addressFault(name, value); f != nil {
		return f
	}
	value = strings.TrimSpace(value)
	if secret.HasReference(value) {
		if !d.reference {
			return &SettingError{Setting: name, Value: shown, Problem: "references ${…} are looked up in settings of connections only; write the value itself"}
		}
		if d.Secret || secret.IsReference(value) {
			return nil // what it stands for is seen when a connection is made
		}
	}
	if err := d.fault(value); err != nil {
		problem := err.Error()
		if d.Valid != "" && !strings.Contains(problem, d.Valid) {
			problem += "; valid: " + d.Valid
		}
		return &SettingError{Setting: name, Value: shown, Problem: problem, Err: err}
	}
	return nil
}

// addressFault refuses a user and a password in an address; nil is fine. Such a value is shown nowhere.
func addressFault(name, value string) *SettingError {
	if d, known := lookUpSetting(name); !known || !d.address || !secret.InAddress(value) {
		return nil
	}
	return &SettingError{Setting: name, Value: hiddenValue, Problem: "has a '@' in it, as where a user and a password stand before a host; addresses are without them: name and password belong to " + jaasSetting}
}

// conflicts are settings that have different values under several names.
func (s Settings) conflicts() []*SettingError {
	var faults []*SettingError
	for name, value := range s {
		d, known := settingsByName[name]
		if !known {
			continue
		}
		// Each pair once: the name that comes first in the definition speaks.
		names := append([]string{d.Name}, d.Aliases...)
		for _, other := range names[slices.Index(names, name)+1:] {
			if v, both := s[other]; both && strings.TrimSpace(v) != strings.TrimSpace(value) {
				faults = append(faults, &SettingError{Setting: name, Problem: "has another value under its other name " + other + "; leave one of them out"})
			}
		}
	}
	return faults
}

// joinFaults puts faults in order; what two checks have found is there once.
func joinFaults(faults []*SettingError) error {
	slices.SortFunc(faults, func(a, b *SettingError) int {
		return cmp.Or(cmp.Compare(a.Setting, b.Setting), cmp.Compare(a.Problem, b.Problem))
	})
	faults = slices.CompactFunc(faults, func(a, b *SettingError) bool { return a.Setting == b.Setting && a.Problem == b.Problem })
	errs := make([]error, len(faults))
	for i, f := range faults {
		errs[i] = f
	}
	return errors.Join(errs...)
}

// unknownSetting says what to do about a name that is no setting's.
func unknownSetting(name string) string {
	if why, ok := settingsElsewhere[name]; ok {
		return "is not supported: " + why
	}
	if strings.HasPrefix(name, topicSetPrefix) {
		return "a topic set needs a name of 1–249 ASCII letters, digits, '.', '_' and '-' behind " + topicSetPrefix
	}
	return "is not known; the closest known name is " + closestSetting(name)
}

// closestSetting is the known name that was probably meant.
func closestSetting(name string) string {
	return closest.Name(name, slices.Sorted(maps.Keys(settingsByName)))
}

// pemFault refuses forms of stores that are not read.
func pemFault(value string) error {
	if value == "" || strings.EqualFold(value, "PEM") {
		return nil
	}
	return errors.New("is not PEM, and stores of Java's are not read; convert it: keytool -importkeystore -srckeystore STORE -destkeystore store.p12 -deststoretype PKCS12; " +
		"openssl pkcs12 -in store.p12 -nodes -out store.pem")
}

// urlFault checks the address of a web server. One with references in it is seen when a connection is made.
func urlFault(value string) error {
	if value == "" || secret.HasReference(value) {
		return nil
	}
	if u, err := url.Parse(value); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return errors.New("is no https or http address")
	}
	return nil
}

func bootstrapFault(value string) error {
	if value == "" {
		return errors.New("is empty")
	}
	for _, address := range settingList(value) {
		at := strings.LastIndex(address, ":")
		if at <= 0 || !portPattern.MatchString(address[at+1:]) {
			return fmt.Errorf("%q is no host:port", address)
		}
	}
	return nil
}

var portPattern = regexp.MustCompile(`^[1-9][0-9]{0,4}$`)
