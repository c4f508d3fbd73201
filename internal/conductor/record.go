package conductor

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// RecordKey is the annotation a container's record is stamped into, so that
// the runtime itself hands our state back after a restart.
const RecordKey = intent.RecordKey

// maxRecord bounds a record's text; ours are below 400 bytes.
const maxRecord = 4096

// record is the stamped form. Fields absent from the runtime's request are
// absent here.
type record struct {
	Version    int    `json:"v"`
	Generation uint64 `json:"gen"`
	CPUs       string `json:"cpus,omitempty"` // owned
	Pristine   struct {
		Shares *uint64 `json:"shares,omitempty"`
		Quota  *int64  `json:"quota,omitempty"`
		Period *uint64 `json:"period,omitempty"`
		CPUs   string  `json:"cpus,omitempty"`
		Mems   string  `json:"mems,omitempty"`
		Memory *int64  `json:"memory,omitempty"`
		// Huge are limits of huge pages by size.
		Huge map[string]uint64 `json:"huge,omitempty"`
	} `json:"pristine"`
}

// signer signs records. A record is bound to its pod and container: copied
// elsewhere it is worthless, and a pod's author cannot write one.
type signer struct{ key []byte }

func (s signer) sum(podUID, container, body string) string {
	mac := hmac.New(sha256.New, s.key)
	fmt.Fprintf(mac, "trimtab record 1\x00%s\x00%s\x00%s", podUID, container, body)
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// newRecord is what a container would return to, and what it owns.
func newRecord(gen uint64, cpus string, p *lifecycle.Resources) record {
	r := record{Version: 1, Generation: gen, CPUs: cpus}
	r.Pristine.Shares = pointer(p.CPU.Shares)
	r.Pristine.Quota = pointer(p.CPU.Quota)
	r.Pristine.Period = pointer(p.CPU.Period)
	r.Pristine.CPUs, r.Pristine.Mems = p.CPU.CPUs, p.CPU.Mems
	r.Pristine.Memory = pointer(p.Memory.Limit)
	for _, h := range p.Hugepages {
		if r.Pristine.Huge == nil {
			r.Pristine.Huge = map[string]uint64{}
		}
		r.Pristine.Huge[h.Size] = h.Limit
	}
	return r
}

// engine returns the record as the engine needs it.
func (r *record) engine() engine.Record {
	out := engine.Record{CPUs: r.CPUs}
	out.Pristine.CPU = lifecycle.CPU{
		Shares: opt(r.Pristine.Shares), Quota: opt(r.Pristine.Quota), Period: opt(r.Pristine.Period),
		CPUs: r.Pristine.CPUs, Mems: r.Pristine.Mems,
	}
	out.Pristine.Memory.Limit = opt(r.Pristine.Memory)
	for _, size := range slices.Sorted(maps.Keys(r.Pristine.Huge)) {
		out.Pristine.Hugepages = append(out.Pristine.Hugepages, lifecycle.HugepageLimit{Size: size, Limit: r.Pristine.Huge[size]})
	}
	return out
}

// stamp returns the text of a container's record.
func (s signer) stamp(podUID, container string, r record) string {
	body, err := json.Marshal(r)
	if err != nil {
		return "" // numbers and strings always marshal
	}
	return s.sum(podUID, container, string(body)) + " " + string(body)
}

// read checks and reads a record. The error says why it cannot be trusted.
func (s signer) read(podUID, container, text string) (engine.Record, error) {
	var out engine.Record
	if len(text) > maxRecord {
		return out, fmt.Errorf("longer than %d bytes", maxRecord)
	}
	sum, body, ok := strings.Cut(text, " ")
	if !ok || !hmac.Equal([]byte(sum), []byte(s.sum(podUID, container, body))) {
		return out, errors.New("not signed with this node's key for this container")
	}
	var r record
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		return out, fmt.Errorf("malformed: %w", err)
	}
	if r.Version != 1 {
		return out, fmt.Errorf("version %d is unknown", r.Version)
	}
	return r.engine(), nil
}

func pointer[T comparable](o lifecycle.Opt[T]) *T {
	if !o.Set {
		return nil
	}
	return &o.V
}

func opt[T comparable](p *T) lifecycle.Opt[T] {
	if p == nil {
		return lifecycle.Opt[T]{}
	}
	return lifecycle.Some(*p)
}
