package metadatasync

// RulesLook is what is known of access rules. T is a rule.
type RulesLook[T comparable] struct {
	Source      []T // those that the mirror follows
	Destination []T
	Memory      []T  // that the mirror made
	Missed      []T  // of Memory, that the source had not when it was looked at before this time: the last decision's Missed, nothing after a restart
	Keep        bool // nothing is removed
}

// RulesDecision is what to do. Memory is to be remembered, durably, before Create and Delete are carried out; After when it is known what became of them.
type RulesDecision[T comparable] struct {
	Create, Delete []T
	Memory         []T
	Missed         []T
}

// After is what is to be remembered when it is known what became of each change. A rule that somebody makes here from then on is his, also if it is one that the mirror removed, or was refused.
func (d RulesDecision[T]) After(outcome func(T) Outcome) (after []T) {
	created, deleted := set(d.Create), set(d.Delete)
	for _, r := range d.Memory {
		_, made := created[r]
		_, gone := deleted[r]
		if made && outcome(r) == Refused || gone && outcome(r) == CarriedOut {
			continue
		}
		after = append(after, r)
	}
	return after
}

// Rules follows access rules. Rules of the source that the destination lacks are made; those that the mirror made and the source has no more are removed, when two looks in a row did not find
// them; every other rule of the destination is its own (decision 12, F-66). The order of a list is that of the look's lists.
func Rules[T comparable](l RulesLook[T]) (d RulesDecision[T]) {
	source, destination, missed, ours := set(l.Source), set(l.Destination), set(l.Missed), set(l.Memory)
	for _, r := range l.Memory {
		_, wanted := source[r]
		_, there := destination[r]
		_, before := missed[r]
		switch {
		case wanted:
			d.Memory = append(d.Memory, r)
		case !there:
			// somebody has removed it, or this program did and could not say so
		case before && !l.Keep:
			d.Memory, d.Missed, d.Delete = append(d.Memory, r), append(d.Missed, r), append(d.Delete, r)
		default:
			d.Memory, d.Missed = append(d.Memory, r), append(d.Missed, r)
		}
	}
	seen := map[T]struct{}{}
	for _, r := range l.Source {
		_, there := destination[r]
		_, twice := seen[r]
		if there || twice {
			continue
		}
		seen[r] = struct{}{}
		d.Create = append(d.Create, r)
		if _, is := ours[r]; !is {
			d.Memory = append(d.Memory, r)
		}
	}
	return d
}

func set[T comparable](list []T) map[T]struct{} {
	s := make(map[T]struct{}, len(list))
	for _, r := range list {
		s[r] = struct{}{}
	}
	return s
}
