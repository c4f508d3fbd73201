package api

import "time"

// ReleasedSince says that and when `trimtab release` took the agent off the node.
func ReleasedSince(at time.Time) string {
	return "released at " + at.Format("2006-01-02 15:04:05 -0700") + " by 'trimtab release'"
}
