package intent

import (
	"errors"
	"fmt"
	"strings"
)

// RDTShares is a pod's request for shares of caches and memory bandwidth, in percent. Package resctrl
// parses the text, such as "L3 0-40, L3@1 20-60, MB 30": L3@1 is for the cache with id 1.
type RDTShares string

// maxCaches limits the number of caches that a pod may name.
const maxCaches = 256

// rdtCache is the JSON of a share of a cache.
type rdtCache struct {
	Range []int `json:"range"` // the first and the last percent of the cache
}

// rdtBandwidth is the JSON of a share of memory bandwidth.
type rdtBandwidth struct {
	Percent *int `json:"percent"`
}

// readResctrl reads the annotation KoordResctrl: shares of caches and memory bandwidth. If one share is malformed, the
// pod requests none.
func readResctrl(t *podTexts, out *Pod) {
	var ask struct {
		Cache struct {
			All *rdtCache `json:"schemata"`
			Per []struct {
				ID int `json:"cacheID"`
				rdtCache
			} `json:"schemataPerCache"`
		} `json:"llc"`
		Bandwidth struct {
			All *rdtBandwidth `json:"schemata"`
			Per []struct {
				ID int `json:"cacheID"`
				rdtBandwidth
			} `json:"schemataPerCache"`
		} `json:"mb"`
	}
	if !t.decode(KoordResctrl, &ask, out) {
		return
	}
	text := t.annotation(KoordResctrl)
	if len(ask.Cache.Per) > maxCaches || len(ask.Bandwidth.Per) > maxCaches {
		out.reportMalformed(KoordResctrl, text, "has more than %d caches", maxCaches)
		return
	}
	var shares []string
	var wrong error
	add := func(what, share string, err error) {
		if err != nil && wrong == nil {
			wrong = fmt.Errorf("%s: %w", what, err)
		}
		shares = append(shares, what+" "+share)
	}
	if c := ask.Cache.All; c != nil {
		share, err := c.share()
		add("L3", share, err)
	}
	for _, c := range ask.Cache.Per {
		share, err := c.share()
		add(fmt.Sprintf("L3@%d", c.ID), share, checkCacheID(c.ID, err))
	}
	if b := ask.Bandwidth.All; b != nil {
		share, err := b.share()
		add("MB", share, err)
	}
	for _, b := range ask.Bandwidth.Per {
		share, err := b.share()
		add(fmt.Sprintf("MB@%d", b.ID), share, checkCacheID(b.ID, err))
	}
	switch {
	case wrong != nil:
		out.reportMalformed(KoordResctrl, text, "%v", wrong)
	case len(shares) > 0:
		out.RDT = Sourced[RDTShares]{RDTShares(strings.Join(shares, ", ")), KoordResctrl}
	}
}

// checkCacheID returns an error if the id of a cache is out of range. Otherwise it returns err, which is the error from
// the check of the cache's share.
func checkCacheID(id int, err error) error {
	if id < 0 || id >= 1<<16 {
		return fmt.Errorf("cacheID is %d, want 0 to %d", id, 1<<16-1)
	}
	return err
}

// share returns the share in the notation of RDTShares.
func (c rdtCache) share() (string, error) {
	if len(c.Range) != 2 || c.Range[0] < 0 || c.Range[1] > 100 || c.Range[0] >= c.Range[1] {
		return "", fmt.Errorf("range is %v, want two numbers from 0 to 100, the first less than the second", c.Range)
	}
	return fmt.Sprintf("%d-%d", c.Range[0], c.Range[1]), nil
}

// share returns the share in the notation of RDTShares.
func (b rdtBandwidth) share() (string, error) {
	if b.Percent == nil || *b.Percent <= 0 || *b.Percent > 100 {
		return "", errors.New("percent is missing or not from 1 to 100")
	}
	return fmt.Sprint(*b.Percent), nil
}
