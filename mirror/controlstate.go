package mirror

import (
	"cmp"
	"slices"
)

// Mirror returns a mirror's entry; ok is false when it does not exist. Settings are shared with s.
func (s *ControlState) Mirror(name string) (entry MirrorEntry, ok bool) {
	if i, ok := s.findMirror(name); ok {
		return s.Mirrors[i], true
	}
	return MirrorEntry{}, false
}

// SetMirror adds a mirror's entry or replaces it. What an earlier mirror of that name has left stays noted until somebody has taken its state records out.
func (s *ControlState) SetMirror(entry MirrorEntry) {
	i, ok := s.findMirror(entry.Name)
	if ok {
		s.Mirrors[i] = entry
		return
	}
	s.Mirrors = slices.Insert(s.Mirrors, i, entry)
}

// RemoveMirror takes a mirror's entry, its question, its promotion, its failbacks and the origins of its topics out, and notes that it was deleted. What was wanted of its topics is the caller's business.
func (s *ControlState) RemoveMirror(d DeletedMirror) {
	if i, ok := s.findMirror(d.Name); ok {
		s.Mirrors = slices.Delete(s.Mirrors, i, i+1)
	}
	if earlier, ok := s.unburied(d.Name); ok {
		d.Purge = d.Purge || earlier.Purge
	}
	s.Origins = slices.DeleteFunc(s.Origins, func(o TopicOrigin) bool { return o.Mirror == d.Name })
	s.Questions = slices.DeleteFunc(s.Questions, func(q FailbackQuestion) bool { return q.Mirror == d.Name })
	s.removePromotion(d.Name)
	s.Failbacks = slices.DeleteFunc(s.Failbacks, func(f Failback) bool { return f.Mirror == d.Name })
	s.Deleted = slices.DeleteFunc(s.Deleted, func(other DeletedMirror) bool { return other.Name == d.Name })
	s.Deleted = append(s.Deleted, d)
	slices.SortFunc(s.Deleted, func(a, b DeletedMirror) int { return cmp.Compare(a.Name, b.Name) })
}

// DeletedMirror returns when and how a mirror was deleted; ok is false when it was not, or was created again.
func (s *ControlState) DeletedMirror(name string) (d DeletedMirror, ok bool) {
	if _, exists := s.findMirror(name); exists {
		return DeletedMirror{}, false
	}
	return s.unburied(name)
}

// unburied returns the deletion of a mirror of that name whose state records may still be there, whether or not it was created again.
func (s *ControlState) unburied(name string) (d DeletedMirror, ok bool) {
	i := slices.IndexFunc(s.Deleted, func(d DeletedMirror) bool { return d.Name == name })
	if i < 0 {
		return DeletedMirror{}, false
	}
	return s.Deleted[i], true
}

// Origin returns where a topic of a mirror comes from.
func (s *ControlState) Origin(mirror, topic string) (o TopicOrigin, ok bool) {
	i, ok := s.findOrigin(mirror, topic)
	if !ok {
		return TopicOrigin{}, false
	}
	return s.Origins[i], true
}

// SetOrigin adds an origin or replaces it, and keeps the order. A topic that another mirror had before has no origin there any more.
func (s *ControlState) SetOrigin(o TopicOrigin) {
	s.Origins = slices.DeleteFunc(s.Origins, func(other TopicOrigin) bool { return other.Topic == o.Topic && other.Mirror != o.Mirror })
	i, ok := s.findOrigin(o.Mirror, o.Topic)
	if ok {
		s.Origins[i] = o
		return
	}
	s.Origins = slices.Insert(s.Origins, i, o)
}

func (s *ControlState) findOrigin(mirror, topic string) (int, bool) {
	return slices.BinarySearchFunc(s.Origins, TopicOrigin{Mirror: mirror, Topic: topic}, func(a, b TopicOrigin) int {
		return cmp.Or(cmp.Compare(a.Mirror, b.Mirror), cmp.Compare(a.Topic, b.Topic))
	})
}

// sameSource says that two origins name the same clusters.
func (o TopicOrigin) sameSource(other TopicOrigin) bool {
	return o.SourceClusterID == other.SourceClusterID && slices.Equal(o.Upstream, other.Upstream)
}

func (s *ControlState) findMirror(name string) (int, bool) {
	return slices.BinarySearchFunc(s.Mirrors, name, func(m MirrorEntry, name string) int { return cmp.Compare(m.Name, name) })
}
