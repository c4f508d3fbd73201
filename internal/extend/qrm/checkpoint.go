package qrm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protojson"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/trust"
)

const (
	// checkpointName is the name of the file in which Katalyst's kubelet, or Katalyst's manager beside a kubelet,
	// stores the allocations of plugins. The file is in the directory in which plugins register.
	checkpointName = "kubelet_qrm_checkpoint"
	// maxCheckpoint limits the size of the checkpoint file, in bytes. maxEntriesRead limits the number of entries in
	// the file.
	maxCheckpoint  = 32 << 20
	maxEntriesRead = 100_000
)

// checkpoint is the JSON of the checkpoint file. Katalyst computes the checksum in the file from Go values of its own
// program, so other programs cannot check this checksum.
type checkpoint struct {
	Data struct {
		PodResourceEntries []checkpointEntry
	}
}

// checkpointEntry is the allocation of one resource for one container.
type checkpointEntry struct {
	PodUID, ContainerName, ResourceName string
	AllocationInfo                      string // JSON of a ResourceAllocationInfo
}

// readOldCheckpoint reads the allocations in the checkpoint of an earlier manager, so that containers keep their
// resources while plugins do not answer. If the file is unreadable, readOldCheckpoint only logs a warning, because the
// manager later also asks plugins for their allocations.
func (m *Manager) readOldCheckpoint() {
	if m.opts.Directory == "" {
		return
	}
	path := filepath.Join(m.opts.Directory, checkpointName)
	pods, skipped, err := readCheckpoint(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		m.opts.Log.Warn("the agent cannot read the checkpoint of an earlier manager of resource plugins; it asks the plugins for their allocations", logkey.File, path, logkey.Err, err)
	default:
		m.pods = pods
		m.opts.Log.Info("the agent has read the allocations of resource plugins from the checkpoint of an earlier manager", logkey.File, path, logkey.Pods, len(pods), logkey.Text, fmt.Sprintf("%d entries of the checkpoint are not valid", skipped))
	}
}

// readCheckpoint returns the pods of a checkpoint, and the number of entries that are not valid.
func readCheckpoint(path string) (pods map[string]*pod, skipped int, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0) //nolint:gosec // a file of the plugins' directory
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, errors.New("the file is not a regular file")
	}
	if err := trust.CheckWriters(info); err != nil {
		return nil, 0, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxCheckpoint+1))
	if err != nil {
		return nil, 0, err
	}
	if len(data) > maxCheckpoint {
		return nil, 0, fmt.Errorf("the file has more than %d bytes", maxCheckpoint)
	}
	return parseCheckpoint(data)
}

// parseCheckpoint parses the text of a checkpoint.
func parseCheckpoint(data []byte) (pods map[string]*pod, skipped int, err error) {
	var c checkpoint
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, 0, err
	}
	if n := len(c.Data.PodResourceEntries); n > maxEntriesRead {
		return nil, 0, fmt.Errorf("the checkpoint has %d entries; the agent reads at most %d", n, maxEntriesRead)
	}
	pods = map[string]*pod{}
	for _, e := range c.Data.PodResourceEntries {
		var info api.ResourceAllocationInfo
		if !isResourceName(e.ResourceName) || !isUIDOrName(e.PodUID) || !isUIDOrName(e.ContainerName) || (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(e.AllocationInfo), &info) != nil {
			skipped++
			continue
		}
		p := pods[e.PodUID]
		if p == nil {
			p = newPod()
			p.migrated, pods[e.PodUID] = true, p
		}
		if p.answers[e.ContainerName] == nil {
			p.answers[e.ContainerName] = map[string]storedAllocation{}
		}
		p.answers[e.ContainerName][e.ResourceName] = storedAllocation{
			request: &api.ResourceRequest{PodUid: e.PodUID, ContainerName: e.ContainerName, ResourceName: e.ResourceName},
			answer:  &api.ResourceAllocation{ResourceAllocation: map[string]*api.ResourceAllocationInfo{e.ResourceName: &info}},
			adopted: true,
		}
	}
	if skipped > 0 && len(pods) == 0 {
		return nil, skipped, fmt.Errorf("none of the %d entries of the checkpoint is valid", skipped)
	}
	return pods, skipped, nil
}

// isUIDOrName reports whether a text can be the UID of a pod or the name of a container: the text is not empty, is
// short, and has no control characters.
func isUIDOrName(s string) bool {
	const longest = 253
	return s != "" && len(s) <= longest && shorten(s) == s
}
