package record

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"strings"
	"sync"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// maxRecordLength is the maximum length of a record's text, in bytes. Most records have less than 400 bytes.
const maxRecordLength = 4096

// Signer writes and reads signed records. The signature covers the pod and the container, so a copy of a record at
// another container is invalid. The author of a pod cannot write a valid record, because the author does not know the
// key.
type Signer struct {
	mu  sync.Mutex
	mac hash.Hash // reused, because making a new hash.Hash takes longer than a signature
}

// NewSigner returns a signer that uses a key.
func NewSigner(key []byte) *Signer { return &Signer{mac: hmac.New(sha256.New, key)} }

// signatureOf returns the signature of a record's JSON text for a container of a pod.
func (s *Signer) signatureOf(podUID, container, body string) string {
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

// Stamp returns the signed text of a container's record. If the text is longer than maxRecordLength, Stamp leaves out
// the values of hook servers and the environment variables that describe CPUs. Then whole is false.
func (s *Signer) Stamp(podUID, container string, r lifecycle.Record) (text string, whole bool) {
	if text = s.encodeSigned(podUID, container, r); len(text) <= maxRecordLength {
		return text, true
	}
	r.HookServerValues, r.CPUEnv = nil, nil
	return s.encodeSigned(podUID, container, r), false
}

// encodeSigned returns the signature of a record and its JSON text, separated by a space.
func (s *Signer) encodeSigned(podUID, container string, r lifecycle.Record) string {
	body, err := r.MarshalJSON() // json.Marshal would check and copy the result of this method
	if err != nil {
		return "" // numbers and strings always marshal
	}
	return s.signatureOf(podUID, container, string(body)) + " " + string(body)
}

// Read verifies and decodes the record of a container. It also accepts a signature for lifecycle.UnnamedContainer,
// because the record may have been written before the runtime reported the container's name.
func (s *Signer) Read(podUID, container, text string) (r lifecycle.Record, err error) {
	if len(text) > maxRecordLength {
		return r, fmt.Errorf("it is longer than %d bytes", maxRecordLength)
	}
	sum, body, ok := strings.Cut(text, " ")
	by := func(name string) bool { return hmac.Equal([]byte(sum), []byte(s.signatureOf(podUID, name, body))) }
	if !ok || !by(container) && !by(lifecycle.UnnamedContainer) {
		return r, errors.New("it is not signed with this node's key for this container")
	}
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		return lifecycle.Record{}, fmt.Errorf("it is malformed: %w", err)
	}
	if r.Version != lifecycle.RecordVersion {
		return lifecycle.Record{}, fmt.Errorf("its version %d is unknown", r.Version)
	}
	return r, nil
}
