package mirror

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxRemembered is how many bytes names and value of an entry may have, escaped as they are in its record. A larger one would have the Control refuse all that is remembered with it.
const maxRemembered = controlRecordLimit - 1000

// unreadable is why the entry means nothing here, nil if it does. A record of what was written can forbid nothing but to write over it: a stop, least of all, must not fail over it.
func (p Provenance) unreadable() error {
	if p.unread == "" {
		return nil
	}
	return unreadableProvenance(p, errors.New(p.unread))
}

// unreadableProvenance names the entry whose value is not what it should be.
func unreadableProvenance(p Provenance, err error) error {
	return &ControlRecordError{controlKey{recordType: provenanceRecord, names: []string{p.Mirror, p.Kind, p.Name}}.String(), err}
}

// encodeRemembered puts a value into an entry. The same value always gives the same text. Errors: *ControlRecordError, for a name that cannot be stored, or more than a record takes.
func encodeRemembered(p Provenance, value any) (Provenance, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return Provenance{}, unreadableProvenance(p, fmt.Errorf("cannot be stored: %w", err))
	}
	p.Value = strings.TrimSuffix(b.String(), "\n")
	if size := len(p.Mirror) + len(p.Name) + len(p.Value) + strings.Count(p.Value, `"`) + strings.Count(p.Value, `\`); size > maxRemembered {
		return Provenance{}, unreadableProvenance(p, fmt.Errorf("it has %d bytes, and a record takes %d", size, maxRemembered))
	}
	if len(p.Name) > math.MaxInt16 || !utf8.ValidString(p.Name) {
		return Provenance{}, unreadableProvenance(p, errors.New("a name is not UTF-8, or longer than 32,767 bytes"))
	}
	return p, nil
}

// decodeRemembered reads a value strictly: a version above the newest known one, or a field that this version does not know, is what a newer one wrote. Errors: *ControlRecordError; errors.Is finds
// ErrNewerRecord.
func decodeRemembered(p Provenance, newest int, value any) error {
	if err := p.unreadable(); err != nil {
		return err
	}
	var form struct {
		Version int `json:"v"`
	}
	if err := json.Unmarshal([]byte(p.Value), &form); err != nil {
		return unreadableProvenance(p, fmt.Errorf("the value is no JSON object with a version: %w", err))
	}
	switch {
	case form.Version < 1:
		return unreadableProvenance(p, errors.New("the value names no version that ever was; nobody of this program wrote it"))
	case form.Version > newest:
		return unreadableProvenance(p, fmt.Errorf("its version is %d, the newest known one %d: %w", form.Version, newest, ErrNewerRecord))
	}
	d := json.NewDecoder(strings.NewReader(p.Value))
	d.DisallowUnknownFields()
	if err := d.Decode(value); err != nil {
		if strings.Contains(err.Error(), "unknown field") {
			err = fmt.Errorf("%w: %w", err, ErrNewerRecord)
		}
		return unreadableProvenance(p, err)
	}
	return nil
}

func compareProvenance(a, b Provenance) int {
	return cmp.Or(cmp.Compare(a.Mirror, b.Mirror), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

// provenance is the value of one entry; ok is false if there is none.
func (s *ControlState) provenance(mirror, kind, name string) (p Provenance, ok bool) {
	p = Provenance{Mirror: mirror, Kind: kind, Name: name}
	i, ok := slices.BinarySearchFunc(s.Provenance, p, compareProvenance)
	if ok {
		p = s.Provenance[i]
	}
	return p, ok
}

// setProvenance adds an entry or replaces it, and keeps the order.
func (s *ControlState) setProvenance(p Provenance) {
	i, ok := slices.BinarySearchFunc(s.Provenance, p, compareProvenance)
	if ok {
		s.Provenance[i] = p
		return
	}
	s.Provenance = slices.Insert(s.Provenance, i, p)
}

// removeProvenance takes an entry out; one that is not there is fine.
func (s *ControlState) removeProvenance(p Provenance) {
	if i, ok := slices.BinarySearchFunc(s.Provenance, p, compareProvenance); ok {
		s.Provenance = slices.Delete(s.Provenance, i, i+1)
	}
}

// provenanceOfKind are the entries of one kind of a mirror, in order. They are shared with s.
func (s *ControlState) provenanceOfKind(mirror, kind string) []Provenance {
	first, _ := slices.BinarySearchFunc(s.Provenance, Provenance{Mirror: mirror, Kind: kind}, compareProvenance)
	end := first
	for end < len(s.Provenance) && s.Provenance[end].Mirror == mirror && s.Provenance[end].Kind == kind {
		end++
	}
	return s.Provenance[first:end]
}
