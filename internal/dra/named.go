package dra

import (
	"bytes"
	"slices"
	"sync"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

const (
	// maxDeviceName is the largest length of the name of a device that selects a class, pool or balloon type, in bytes.
	// maxClassDevicesOfPod is the largest number of such devices of one pod.
	maxDeviceName, maxClassDevicesOfPod = 200, 16
)

// checkpoint is the content of the kubelet's checkpoint file at the last read. The file is parsed only if its text has
// changed.
type checkpoint struct {
	mu     sync.Mutex // held from a read until the Source has stored the result of this read
	text   []byte
	claims map[string]claim
	err    error
}

// read reads the file at path with the function file. changed reports whether the result differs from the result of the
// last read. The caller holds mu.
func (c *checkpoint) read(path string, file func(string) ([]byte, error)) (claims map[string]claim, changed bool, err error) {
	text, err := readCheckpointText(path, file)
	switch {
	case err != nil || text == nil:
		changed = c.text != nil || c.claims != nil || (err == nil) != (c.err == nil)
		c.text, c.claims, c.err = nil, nil, err
	case c.text == nil || !bytes.Equal(text, c.text):
		c.claims, c.err = parseCheckpoint(text)
		c.text, changed = text, true
	}
	return c.claims, changed, c.err
}

// ReadCheckpoint reads the kubelet's checkpoint. While the file is missing or not valid, pods keep the classes, pools
// and balloon types that the last valid checkpoint selected.
func (s *Source) ReadCheckpoint() {
	s.checkpoint.mu.Lock()
	defer s.checkpoint.mu.Unlock()
	claims, changed, err := s.checkpoint.read(s.options.Checkpoint, s.options.Read)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && (s.checkpointErr == nil || s.checkpointErr.Error() != err.Error()) {
		s.options.Log.Warn("the checkpoint of the kubelet's DRA manager is not valid; the agent does not know the names of claims, and does not check which pods may use them",
			logkey.File, s.options.Checkpoint, logkey.Err, err)
	}
	s.claims, s.checkpointErr = claims, err
	if changed && claims != nil {
		s.classDevices, s.podsWithCPUClaims = classDevicesByPod(claims), podsWithCPUClaims(claims)
	}
}

// classDevicesByPod returns the CDI devices that select a class, pool or balloon type, by pod UID.
func classDevicesByPod(claims map[string]claim) map[string][]lifecycle.ClaimedDevice {
	named := map[string][]lifecycle.ClaimedDevice{}
	for _, c := range claims {
		for _, device := range c.classDevices() {
			for pod := range c.PodUIDs {
				named[pod] = append(named[pod], lifecycle.ClaimedDevice{Device: device, Claim: c.name()})
			}
		}
	}
	for pod, all := range named {
		slices.SortFunc(all, lifecycle.ClaimedDevice.Compare)
		named[pod] = all[:min(len(all), maxClassDevicesOfPod)]
	}
	return named
}

// podsWithCPUClaims returns the UIDs of the pods with claims for CPUs.
func podsWithCPUClaims(claims map[string]claim) map[string]bool {
	uses := map[string]bool{}
	for _, c := range claims {
		if slices.ContainsFunc(c.devices(), isClaimDevice) {
			for pod := range c.PodUIDs {
				uses[pod] = true
			}
		}
	}
	return uses
}

// HasCPUClaims reports whether the kubelet prepared claims for CPUs for a pod. It does no I/O. It returns false until a
// valid checkpoint was read.
func (s *Source) HasCPUClaims(podUID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.podsWithCPUClaims[podUID]
}

// ClassDevices returns the CDI devices of a pod's claims that select a class, pool or balloon type, sorted. It does no
// I/O. It uses only the kubelet's checkpoint, because other programs may add CDI devices to the request that creates a
// container. Callers must not change the slice.
func (s *Source) ClassDevices(podUID string) []lifecycle.ClaimedDevice {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.classDevices[podUID]
}
