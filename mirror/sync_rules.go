package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/clustermirror/clustermirror/internal/metadatasync"
)

// ruleSync gives the destination the access rules of the source that the mirror's filter names, and takes away only rules that it made (spec §6, decision 12, F-66).
type ruleSync struct {
	m *Mirror

	mu      sync.Mutex
	life    int              // counts what was forgotten
	missed  []ACL            // rules that the last look did not find at the source
	unsaved map[ACL]struct{} // rules that are not the mirror's any more, and could not be taken out of what is remembered
}

// forget drops what is in memory of a mirror that was deleted.
func (y *ruleSync) forget() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.life++
	y.missed, y.unsaved = nil, nil
}

// note keeps what a look of this life has learned for the next one.
func (y *ruleSync) note(life int, f func()) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if life == y.life {
		f()
	}
}

// mirroring says whether anything is mirrored here: a destination that was failed over to has rules of its own.
func (y *ruleSync) mirroring() bool { return len(y.m.syncing.groups.followed()) > 0 }

// ruleProvenance is the kind of Provenance for access rules; its name is the rule.
const ruleProvenance = "acl"

// stored is the rule as a name of Provenance.
func (a ACL) stored() string {
	b, _ := json.Marshal([]string{a.ResourceType, a.ResourceName, a.PatternType, a.Principal, a.Host, a.Operation, a.Permission}) // strings always can be
	return string(b)
}

func aclStored(name string) (a ACL, err error) {
	var fields []string
	if err := json.Unmarshal([]byte(name), &fields); err != nil || len(fields) != 7 {
		return a, errors.New("it is no access rule as this version stores it")
	}
	a = ACL{fields[0], fields[1], fields[2], fields[3], fields[4], fields[5], fields[6]}
	if a.stored() != name {
		return a, errors.New("it is an access rule, and not as this version stores it")
	}
	return a, nil
}

// storable says whether a rule can be remembered: a name of Provenance is UTF-8, of at most 32,767 bytes.
func (a ACL) storable() bool {
	name := a.stored()
	back, err := aclStored(name)
	return err == nil && back == a && len(name) <= math.MaxInt16
}

func (y *ruleSync) look(ctx context.Context) (left found, err error) {
	left = found{}
	if !y.mirroring() {
		return left, nil
	}
	y.mu.Lock()
	life, missed, unsaved := y.life, y.missed, maps.Clone(y.unsaved)
	y.mu.Unlock()
	filter, err := y.m.settingsNow().ACLRules()
	if err != nil {
		return left, err
	}
	reader, writer, err := abilities[ACLReader, ACLWriter](ctx, y.m, "access rules")
	if err != nil {
		return left, err
	}
	source, err := bounded(ctx, y.m, reader.ACLs)
	if err != nil {
		return left, unsupported(noAuthorizer(err, "source"), "access rules")
	}
	if _, err := y.m.desk.confirm(ctx, nil); err != nil {
		return left, err
	}
	here, err := bounded(ctx, y.m, writer.ACLs)
	if err != nil {
		return left, noAuthorizer(err, "destination")
	}
	state, err := bounded(ctx, y.m, y.m.cfg.Control.Read)
	if err != nil {
		return left, fmt.Errorf("reading which access rules are the mirror's: %w", err)
	}
	stored := y.remembered(&state, left)
	look := y.lookOf(&state, filter, unsaved, source, here, state.stoppedNames(y.m.cfg.Name), left)
	look.Missed = missed
	resting := slices.DeleteFunc(slices.Clone(stored), func(a ACL) bool { // not followed as the filter is now: they stay, and still are the mirror's if they are named again
		_, is := unsaved[a]
		return is || filter.Matches(a)
	})
	d := metadatasync.Rules(look)
	y.note(life, func() { y.missed = d.Missed })
	if err := y.remember(ctx, stored, slices.Concat(d.Memory, resting)); err != nil {
		return left, fmt.Errorf("remembering which access rules are to be made; none is made: %w", err)
	}
	y.note(life, func() { y.unsaved = nil })
	outcomes, err := y.change(ctx, writer, d, left)
	if over := y.m.lease.over(); over != nil {
		return left, over
	}
	after := d.After(func(a ACL) metadatasync.Outcome { return outcomes[a] })
	if unsaved := y.remember(ctx, d.Memory, after); unsaved != nil {
		y.note(life, func() { y.unsaved = beyond(d.Memory, after) })
		err = errors.Join(err, fmt.Errorf("remembering which access rules were made and removed: %w", unsaved))
	}
	return left, err
}

// lookOf is what is known for a decision, but for what the last look missed. stopped are the mirror's topics that are served here.
func (y *ruleSync) lookOf(state *ControlState, filter ACLFilter, unsaved map[ACL]struct{}, source, here []ACL, stopped []string, left found) metadatasync.RulesLook[ACL] {
	var ours, wanted []ACL
	for _, a := range y.remembered(state, found{}) {
		if _, is := unsaved[a]; !is && filter.Matches(a) {
			ours = append(ours, a)
		}
	}
	fence := state.fencedBy(y.m.cfg.Name)
	for _, a := range source {
		switch {
		case !filter.Matches(a):
		case fence[a]:
			left["rule "+a.String()] = "a fence of a promotion made it at the source; it is not made here"
		case !a.storable():
			left["rule "+a.String()] = "it cannot be remembered, so it is not made: it is not UTF-8, or longer than a record takes"
		default:
			wanted = append(wanted, a)
		}
	}
	look := metadatasync.RulesLook[ACL]{Source: wanted, Destination: here, Memory: ours}
	if len(stopped) > 0 { // what applications need there is not the source's to take away any more
		look.Keep = true
		if kept := len(beyond(ours, wanted)); kept > 0 {
			left["rules that the source has no more"] = fmt.Sprintf("%d are kept, because %d topics of the mirror are stopped and served here", kept, len(stopped))
		}
	}
	return look
}

// remembered are the rules that the mirror made. A record that cannot be read is of no rule that is removed.
func (y *ruleSync) remembered(s *ControlState, left found) (rules []ACL) {
	for _, p := range s.provenanceOfKind(y.m.cfg.Name, ruleProvenance) {
		a, err := aclStored(p.Name)
		if unread := p.unreadable(); unread != nil {
			err = unread
		} else if err == nil && p.Value != "" {
			err = fmt.Errorf("it has a value: %w", ErrNewerRecord)
		}
		if err != nil {
			left["record of a rule "+p.Name] = "it cannot be read, so the mirror does not remove the rule: " + unreadableProvenance(p, err).Error()
			continue
		}
		rules = append(rules, a)
	}
	return rules
}

// remember makes what is remembered, before, to after; nothing is written where they are the same.
func (y *ruleSync) remember(ctx context.Context, before, after []ACL) error {
	gone, more := beyond(before, after), beyond(after, before)
	if len(gone)+len(more) == 0 {
		return nil
	}
	return y.m.syncing.remember.do(ctx, func(s *ControlState) {
		for a := range gone {
			s.removeProvenance(Provenance{Mirror: y.m.cfg.Name, Kind: ruleProvenance, Name: a.stored()})
		}
		for a := range more {
			if _, is := s.provenance(y.m.cfg.Name, ruleProvenance, a.stored()); !is { // a newer version may have written it
				s.setProvenance(Provenance{Mirror: y.m.cfg.Name, Kind: ruleProvenance, Name: a.stored()})
			}
		}
	})
}

// beyond are the rules of one list that another one has not.
func beyond(rules, others []ACL) map[ACL]struct{} {
	more := map[ACL]struct{}{}
	for _, a := range rules {
		more[a] = struct{}{}
	}
	for _, a := range others {
		delete(more, a)
	}
	return more
}

// noAuthorizer makes of a cluster without access rules a part that is not followed.
func noAuthorizer(err error, side string) error {
	if errors.Is(err, ErrNoAuthorizer) {
		return notFollowed("the " + side + " has no authorizer, so it has no access rules; nothing is changed at the destination")
	}
	return fmt.Errorf("reading access rules at the %s: %w", side, err)
}

// change makes and removes rules, as long as anything is mirrored here, and says what became of each.
func (y *ruleSync) change(ctx context.Context, writer ACLWriter, d metadatasync.RulesDecision[ACL], left found) (outcomes map[ACL]metadatasync.Outcome, err error) {
	outcomes = map[ACL]metadatasync.Outcome{}
	for _, a := range slices.Concat(d.Create, d.Delete) {
		outcomes[a] = metadatasync.Refused // not tried
	}
	var made, gone []string
	for _, step := range []struct {
		rules []ACL
		do    func(context.Context, []ACL) []error
		done  *[]string
	}{{d.Create, writer.CreateACLs, &made}, {d.Delete, writer.DeleteACLs, &gone}} {
		if len(step.rules) == 0 {
			continue
		}
		if err = y.m.lease.hold(); err != nil {
			break
		}
		if !y.mirroring() {
			break
		}
		errs, _ := bounded(ctx, y.m, func(ctx context.Context) ([]error, error) { return step.do(ctx, slices.Clone(step.rules)), nil })
		for i, a := range step.rules {
			var no error
			switch {
			case i < len(errs):
				no = errs[i]
			case errs != nil:
				no = fmt.Errorf("the destination has answered for %d of %d rules", len(errs), len(step.rules))
			}
			if outcomes[a] = outcomeOf(no); no != nil {
				left["rule "+a.String()] = no.Error()
				continue
			}
			*step.done = append(*step.done, a.String())
		}
	}
	if len(made)+len(gone) > 0 {
		y.m.emit(RulesFollowed{EventMeta: y.m.meta(TopicPartition{Partition: Unknown}), Made: made, Removed: gone})
	}
	return outcomes, err
}
