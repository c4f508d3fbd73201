package dra

import (
	"bytes"
	"slices"
	"sync"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

const (
	// maxDeviceName limits the name of a device that names a class, in bytes. maxClassDevicesOfPod limits the number
	// of such devices of one pod.
	maxDeviceName, maxClassDevicesOfPod = 200, 16
)

// checkpoint is the content of the kubelet's checkpoint at the last read. A changed file is parsed again.
type checkpoint struct {
	mu     sync.Mutex // held from a read until the source has its result
	text   []byte
	claims map[string]claim
	err    error
}

// read reads the file. changed reports whether the result differs from the result of the last read.
// The caller holds mu.
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

// ReadCheckpoint reads the kubelet's checkpoint. While the file is missing or not valid, pods keep the classes that
// it named before.
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

// classDevicesByPod returns the devices that name classes, by pod UID.
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
		if slices.ContainsFunc(c.devices(), isDevice) {
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

// ClassDevices returns the CDI devices by which the claims of a pod name a class, pool or balloon type, sorted. It
// does no I/O. It uses only the kubelet's checkpoint, because other programs may add devices to a runtime's
// request. Callers must not change the slice.
func (s *Source) ClassDevices(podUID string) []lifecycle.ClaimedDevice {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.classDevices[podUID]
}
