package podspec

import (
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sleep"
)

// PendingPod has the spec, labels and annotations of a pod that has not started. Only Chain.Pending sets Spec. The
// chain drops the labels and annotations when the pod has started, because they can be large.
type PendingPod struct {
	Spec                *lifecycle.PodSpec
	Labels, Annotations map[string]string
}

// pending returns the labels and annotations of a pod that has not started and is not being deleted. For any other pod
// it returns nil.
func (p *v1Pod) pending() *PendingPod {
	if p.Status.Phase != "Pending" || p.Metadata.Deletion != "" {
		return nil
	}
	return &PendingPod{Labels: p.Metadata.Labels, Annotations: p.Metadata.Annotations}
}

// singleUpdate returns an update with one pod.
func singleUpdate(s *lifecycle.PodSpec, pending *PendingPod) Update {
	return Update{All: map[string]*lifecycle.PodSpec{s.UID: s}, Pending: map[string]*PendingPod{s.UID: pending}}
}

// notePendingLocked stores which pods of an answer have not started.
func (l *Chain) notePendingLocked(u *Update) {
	if l.o.PendingChanged == nil {
		return
	}
	for uid := range u.All {
		pending, listed := u.Pending[uid]
		switch {
		case pending != nil && l.specLocked(uid) != nil:
			if l.pending[uid] == nil {
				sleep.Wake(l.wake)
			}
			l.pending[uid] = pending
		case listed || u.Full:
			delete(l.pending, uid)
		}
	}
}

// Pending returns the pods that have not started, in no particular order.
func (l *Chain) Pending() (out []PendingPod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for uid, pending := range l.pending {
		if s := l.specLocked(uid); s != nil {
			out = append(out, PendingPod{s, pending.Labels, pending.Annotations})
		}
	}
	return out
}
