package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/clustermirror/clustermirror/internal/metadatasync"
)

// ruleSync gives the destination the access rules of the source that the mirror's filter names, and takes away only rules that it made (spec §6, decision 12, F-66).
type ruleSync struct {
	m      *Mirror
	missed []ACL // rules that the last look did not find at the source; of the one look at a time
}

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
		return a, fmt.Errorf("mirror: %q is no access rule as this version stores it", name)
	}
	return ACL{fields[0], fields[1], fields[2], fields[3], fields[4], fields[5], fields[6]}, nil
}

func (y *ruleSync) look(ctx context.Context) (left found, err error) {
	left = found{}
	if len(y.m.syncing.groups.followed()) == 0 {
		return left, nil // nothing is mirrored: a destination that was failed over to has rules of its own
	}
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
	var ours []ACL
	for _, p := range state.provenanceOfKind(y.m.cfg.Name, ruleProvenance) {
		rule, err := aclStored(p.Name)
		if err != nil {
			return left, err
		}
		ours = append(ours, rule)
	}
	wanted := slices.DeleteFunc(slices.Clone(source), func(a ACL) bool { return !filter.Matches(a) })
	d := metadatasync.Rules(metadatasync.RulesLook[ACL]{Source: wanted, Destination: here, Memory: ours, Missed: y.missed})
	y.missed = d.Missed
	if !slices.Equal(d.Memory, ours) {
		if err := y.rememberRules(ctx, ours, d.Memory); err != nil {
			return left, fmt.Errorf("remembering which access rules are to be made; none is made: %w", err)
		}
	}
	return left, y.change(ctx, writer, d, left)
}

// rememberRules replaces what is remembered.
func (y *ruleSync) rememberRules(ctx context.Context, before, after []ACL) error {
	return y.m.syncing.remember.do(ctx, func(s *ControlState) {
		for _, a := range before {
			if !slices.Contains(after, a) {
				s.removeProvenance(Provenance{Mirror: y.m.cfg.Name, Kind: ruleProvenance, Name: a.stored()})
			}
		}
		for _, a := range after {
			s.setProvenance(Provenance{Mirror: y.m.cfg.Name, Kind: ruleProvenance, Name: a.stored()})
		}
	})
}

// noAuthorizer makes of a cluster without access rules a part that is not followed.
func noAuthorizer(err error, side string) error {
	if errors.Is(err, ErrNoAuthorizer) {
		return notFollowed("the " + side + " has no authorizer, so it has no access rules; nothing is changed at the destination")
	}
	return fmt.Errorf("reading access rules at the %s: %w", side, err)
}

func (y *ruleSync) change(ctx context.Context, writer ACLWriter, d metadatasync.RulesDecision[ACL], left found) error {
	var made, gone []string
	for _, step := range []struct {
		rules []ACL
		do    func(context.Context, []ACL) []error
		done  *[]string
	}{{d.Create, writer.CreateACLs, &made}, {d.Delete, writer.DeleteACLs, &gone}} {
		if len(step.rules) == 0 {
			continue
		}
		if err := y.m.lease.hold(); err != nil {
			return err
		}
		errs, _ := bounded(ctx, y.m, func(ctx context.Context) ([]error, error) { return step.do(ctx, step.rules), nil })
		for i, rule := range step.rules {
			if i < len(errs) && errs[i] != nil {
				left["rule "+rule.String()] = errs[i].Error()
				continue
			}
			*step.done = append(*step.done, rule.String())
		}
	}
	if len(made)+len(gone) > 0 {
		y.m.emit(RulesFollowed{EventMeta: y.m.meta(TopicPartition{Partition: Unknown}), Made: made, Removed: gone})
	}
	return nil
}

// listed is a list that may be long, in words.
func listed(list []string, most int) string {
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}
