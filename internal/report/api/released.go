package api

import "time"

// ReleasedText says when 'trimtab release' made the agent restore all values.
func ReleasedText(at time.Time) string {
	return "released at " + at.Format("2006-01-02 15:04:05 -0700") + " by 'trimtab release'"
}
