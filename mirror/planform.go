package mirror

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// planForm is the version of the stored form of plans, "version" in JSON. A plan is consent to exactly what it names, so one whose form is not known, or that has a field that is
// not known, is refused and never read in part.
const planForm = 1

// The plans without their methods.
type (
	plainFailoverPlan FailoverPlan
	plainFailbackPlan FailbackPlan
)

// MarshalJSON writes the version of the form first.
func (p FailoverPlan) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Version int `json:"version"`
		plainFailoverPlan
	}{planForm, plainFailoverPlan(p)})
}

// UnmarshalJSON reads what MarshalJSON writes. Errors: a form that a newer version wrote, or that is no plan.
func (p *FailoverPlan) UnmarshalJSON(b []byte) error {
	var in struct {
		Version int `json:"version"`
		plainFailoverPlan
	}
	if err := readPlan(b, &in); err != nil {
		return err
	}
	*p = FailoverPlan(in.plainFailoverPlan)
	return nil
}

// MarshalJSON writes the version of the form first.
func (p FailbackPlan) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Version int `json:"version"`
		plainFailbackPlan
	}{planForm, plainFailbackPlan(p)})
}

// UnmarshalJSON reads what MarshalJSON writes. Errors: a form that a newer version wrote, or that is no plan.
func (p *FailbackPlan) UnmarshalJSON(b []byte) error {
	var in struct {
		Version int `json:"version"`
		plainFailbackPlan
	}
	if err := readPlan(b, &in); err != nil {
		return err
	}
	*p = FailbackPlan(in.plainFailbackPlan)
	return nil
}

// Hash is a short name of this plan, as the history has it: another plan has another one. The Reason is no part of it.
func (p FailoverPlan) Hash() string {
	p.Reason = ""
	return hashOfPlan(p)
}

// Hash is a short name of this plan, as the history has it: another plan has another one. The Reason is no part of it.
func (p FailbackPlan) Hash() string {
	p.Reason = ""
	return hashOfPlan(p)
}

func hashOfPlan(plan any) string {
	b, err := json.Marshal(plan)
	if err != nil { // a time that is none: the plan was made by hand
		b = fmt.Appendf(nil, "%+v", plan)
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])[:8]
}

// intentOf is why a plan's verb is used: the history has to lead from the verb to the plan.
func intentOf(what, hash, reason string) Intent {
	return Intent{Reason: cmp.Or(reason, what+" of plan "+hash), detail: what + " plan " + hash}
}

// fits refuses a plan that was made for another mirror or for other clusters: topics of the same names are there too, and would be opened or cut. An id that one of the two does
// not know is not compared.
func (m *Mirror) fits(mirror, source, destination string) error {
	refuse := func(what, plan, here string) error {
		return &Error{Code: InvalidRequest, Mirror: m.cfg.Name, Partition: -1, Message: fmt.Sprintf("the plan is for %s %q, and here it is %q; carry it out there, or plan again here. "+
			"Nothing has changed", what, plan, here)}
	}
	if mirror != m.cfg.Name {
		return refuse("mirror", mirror, m.cfg.Name)
	}
	s := m.Status()
	if source != "" && s.SourceClusterID != "" && source != s.SourceClusterID {
		return refuse("source cluster", source, s.SourceClusterID)
	}
	if destination != "" && s.DestinationClusterID != "" && destination != s.DestinationClusterID {
		return refuse("destination cluster", destination, s.DestinationClusterID)
	}
	return nil
}

func readPlan(b []byte, in any) error {
	var form struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(b, &form); err != nil {
		return fmt.Errorf("mirror: this is no plan: %w", err)
	}
	switch {
	case form.Version > planForm:
		return fmt.Errorf("mirror: a newer version wrote this plan (form %d, this one knows %d): carry it out with that version, or plan again", form.Version, planForm)
	case form.Version < 1:
		return fmt.Errorf("mirror: this is no plan: it has no version")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(in); err != nil {
		return fmt.Errorf("mirror: this plan cannot be carried out, plan again: %w", err)
	}
	return nil
}
