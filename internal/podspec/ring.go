package podspec

import "slices"

// maxGone is how many ended pods are stored. An answer that was sent before a pod ended arrives within seconds.
const maxGone = 256

// ring holds the last UIDs that were added. The zero value is ready for use.
type ring struct {
	uids []string
	next int
}

func (r *ring) has(uid string) bool { return slices.Contains(r.uids, uid) }

func (r *ring) add(uid string) {
	if len(r.uids) < maxGone {
		r.uids = append(r.uids, uid)
		return
	}
	r.uids[r.next] = uid
	r.next = (r.next + 1) % maxGone
}
