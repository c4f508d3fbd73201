package podspec

import "slices"

// maxEndedPods is how many UIDs of ended pods the chain stores. With these UIDs it recognises an answer that was sent
// before a pod ended. Such an answer arrives within seconds.
const maxEndedPods = 256

// uidRing has the last maxEndedPods UIDs that were added. The zero value is ready for use.
type uidRing struct {
	uids []string
	next int // the index of the oldest UID, which the next UID replaces when uids is full
}

func (r *uidRing) has(uid string) bool { return slices.Contains(r.uids, uid) }

func (r *uidRing) add(uid string) {
	if len(r.uids) < maxEndedPods {
		r.uids = append(r.uids, uid)
		return
	}
	r.uids[r.next] = uid
	r.next = (r.next + 1) % maxEndedPods
}
