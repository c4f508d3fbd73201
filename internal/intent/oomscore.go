package intent

import (
	"errors"
	"fmt"
	"strconv"
)

// The kernel's limits of oom_score_adj.
const minOOMScore, maxOOMScore = -1000, 1000

// checkOOMScore returns an error if the kernel would refuse a score.
func checkOOMScore(n int64) error {
	if n < minOOMScore || n > maxOOMScore {
		return fmt.Errorf("the score is %d, want %d to %d", n, minOOMScore, maxOOMScore)
	}
	return nil
}

// readOOMScore reads the annotations KoordOOMScore (for all containers) and KoordOOMScoreSpec (by container).
func readOOMScore(t *podTexts, out *Pod) {
	if text := t.annotation(KoordOOMScore); text != "" {
		n, err := strconv.ParseInt(text, 10, 32)
		if err == nil {
			err = checkOOMScore(n)
		} else {
			err = errors.New("the score is not a whole number")
		}
		if err == nil {
			out.OOMScore = Sourced[int64]{n, KoordOOMScore}
		} else {
			out.reportMalformed(KoordOOMScore, text, "%v", err)
		}
	}
	var spec map[string]int64
	if !t.decode(KoordOOMScoreSpec, &spec, out) || len(spec) == 0 {
		return
	}
	scores := make(map[string]int64, len(spec))
	for _, name := range sortedKeys(spec) {
		if err := checkOOMScore(spec[name]); err != nil {
			out.reportMalformed(KoordOOMScoreSpec, t.annotation(KoordOOMScoreSpec), "container %s: %v", printable(name), err)
			continue
		}
		scores[name] = spec[name]
	}
	out.OOMScores = Sourced[map[string]int64]{scores, KoordOOMScoreSpec}
}
