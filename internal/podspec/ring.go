package podspec

import "slices"

// mostGone is how many ended pods are remembered: answers that were on their way when
// a pod ended come within seconds.
const mostGone = 256

// ring holds the last UIDs that were added. The zero value is ready.
type ring struct {
	uids []string
	next int
}

func (r *ring) has(uid string) bool { return slices.Contains(r.uids, uid) }

func (r *ring) add(uid string) {
	if len(r.uids) < mostGone {
		r.uids = append(r.uids, uid)
		return
	}
	r.uids[r.next] = uid
	r.next = (r.next + 1) % mostGone
}
