package podspec

import "github.com/trimtab/trimtab/internal/lifecycle"

// Pending is what is known of a pod that has not started, beside its spec. It is kept only until
// then, because labels and annotations can be large.
type Pending struct {
	Spec                *lifecycle.PodSpec
	Labels, Annotations map[string]string
}

// pending returns what is known of a pod, if it has not started and is not being deleted; nil if it
// has.
func (p *v1Pod) pending() *Pending {
	if p.Status.Phase != "Pending" || p.Metadata.Deletion != "" {
		return nil
	}
	return &Pending{Labels: p.Metadata.Labels, Annotations: p.Metadata.Annotations}
}

// one is the update about one pod.
func one(s *lifecycle.PodSpec, of *Pending) Update {
	return Update{All: map[string]*lifecycle.PodSpec{s.UID: s}, Pending: map[string]*Pending{s.UID: of}}
}

// notePendingLocked stores which pods of an answer have not started.
func (l *Chain) notePendingLocked(u *Update) {
	if l.o.PendingChanged == nil {
		return
	}
	for uid := range u.All {
		of, said := u.Pending[uid]
		switch {
		case of != nil && l.specLocked(uid) != nil:
			if l.pending[uid] == nil {
				signal(l.wake)
			}
			l.pending[uid] = of
		case said || u.Full:
			delete(l.pending, uid)
		}
	}
}

// Pending returns the pods that have not started, in no order.
func (l *Chain) Pending() (out []Pending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for uid, of := range l.pending {
		if s := l.specLocked(uid); s != nil {
			out = append(out, Pending{s, of.Labels, of.Annotations})
		}
	}
	return out
}
