package conductor

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

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
	// Given are values it was created with that no runtime tells of, by field.
	Given map[lifecycle.Field]string `json:"given,omitempty"`
	// Ours are resources a hook ever decided for it.
	Ours []lifecycle.Field `json:"ours,omitempty"`
	// Unplaced: created while placement was off, so nothing was refused.
	Unplaced bool `json:"unplaced,omitempty"`
	// Wanted is how many CPUs its last resize asked for in vain.
	Wanted int `json:"wanted,omitempty"`
	// Home is the NUMA node whose pool it was put into, Mems are the memory nodes
	// it was given.
	Home *int   `json:"home,omitempty"`
	Mems string `json:"mems,omitempty"`
	// Exports is what it was told of its CPUs by environment.
	Exports map[string]string `json:"exports,omitempty"`
	// Outside are values wanted from outside and granted.
	Outside  []lifecycle.Value `json:"outside,omitempty"`
	Pristine struct {
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
type signer struct {
	mu  sync.Mutex
	mac hash.Hash // with the key; making it anew costs more than a sum
}

func newSigner(key []byte) *signer { return &signer{mac: hmac.New(sha256.New, key)} }

func (s *signer) sum(podUID, container, body string) string {
	text := make([]byte, 0, 512)
	text = append(text, "trimtab record 1\x00"...)
	text = append(append(text, podUID...), 0)
	text = append(append(text, container...), 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mac.Reset()
	s.mac.Write(append(text, body...))
	return hex.EncodeToString(s.mac.Sum(text[:0])[:16])
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
	out := engine.Record{CPUs: r.CPUs, Given: r.Given, Ours: r.Ours, Unplaced: r.Unplaced, Wanted: r.Wanted, Home: opt(r.Home), Mems: r.Mems, Exports: r.Exports, Outside: r.Outside}
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
func (s *signer) stamp(podUID, container string, r record) string {
	body := string(r.appendJSON(make([]byte, 0, 256)))
	return s.sum(podUID, container, body) + " " + body
}

// appendJSON appends what json.Marshal makes of the record. A pod waits for it,
// and reflection over a record nobody looked at for a while costs more than all
// the rest of the stamp.
func (r *record) appendJSON(b []byte) []byte {
	b = strconv.AppendInt(append(b, `{"v":`...), int64(r.Version), 10)
	b = strconv.AppendUint(append(b, `,"gen":`...), r.Generation, 10)
	b = appendText(b, "cpus", r.CPUs)
	b = appendMap(b, "given", r.Given)
	for i, f := range r.Ours {
		if i == 0 {
			b = append(appendName(b, "ours"), '[')
		} else {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), f.String()...), '"') // names of fields are plain
	}
	if len(r.Ours) > 0 {
		b = append(b, ']')
	}
	if r.Unplaced {
		b = append(appendName(b, "unplaced"), "true"...)
	}
	if r.Wanted != 0 {
		b = strconv.AppendInt(appendName(b, "wanted"), int64(r.Wanted), 10)
	}
	if r.Home != nil {
		b = strconv.AppendInt(appendName(b, "home"), int64(*r.Home), 10)
	}
	b = appendMap(appendText(b, "mems", r.Mems), "exports", r.Exports)
	if outside, err := json.Marshal(r.Outside); len(r.Outside) > 0 && err == nil {
		b = append(appendName(b, "outside"), outside...)
	}
	b = append(b, `,"pristine":`...)
	at := len(b)
	p := &r.Pristine
	if p.Shares != nil {
		b = strconv.AppendUint(appendName(b, "shares"), *p.Shares, 10)
	}
	if p.Quota != nil {
		b = strconv.AppendInt(appendName(b, "quota"), *p.Quota, 10)
	}
	if p.Period != nil {
		b = strconv.AppendUint(appendName(b, "period"), *p.Period, 10)
	}
	b = appendText(appendText(b, "cpus", p.CPUs), "mems", p.Mems)
	if p.Memory != nil {
		b = strconv.AppendInt(appendName(b, "memory"), *p.Memory, 10)
	}
	b = appendMap(b, "huge", p.Huge)
	if len(b) == at {
		b = append(b, '{')
	}
	b[at] = '{' // in place of the first comma
	return append(b, "}}"...)
}

func appendName(b []byte, name string) []byte {
	return append(append(append(b, `,"`...), name...), `":`...)
}

// appendMap appends a map, unless it is empty. Few containers have one.
func appendMap[K comparable, V any](b []byte, name string, m map[K]V) []byte {
	if len(m) == 0 {
		return b
	}
	text, err := json.Marshal(m)
	if err != nil {
		return b // names, texts and numbers always marshal
	}
	return append(appendName(b, name), text...)
}

// appendText appends a text, unless it is empty. Lists of CPUs and nodes are
// plain; what else a runtime may tell is quoted by the library.
func appendText(b []byte, name, text string) []byte {
	if text == "" {
		return b
	}
	b = appendName(b, name)
	if strings.Trim(text, "0123456789,-") == "" {
		return append(append(append(b, '"'), text...), '"')
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		quoted = []byte(`""`) // texts always marshal
	}
	return append(b, quoted...)
}

// read checks and reads a record. The error says why it cannot be trusted.
func (s *signer) read(podUID, container, text string) (engine.Record, error) {
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
