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
	// checkpointName is the file in which Katalyst's kubelet and its manager beside a kubelet keep
	// what plugins allocated, in their directory of plugins.
	checkpointName = "kubelet_qrm_checkpoint"
	// maxCheckpoint limits that file, in bytes; maxEntriesRead its entries.
	maxCheckpoint  = 32 << 20
	maxEntriesRead = 100_000
)

// checkpoint is the JSON form of that file. Its checksum is over Go's form of the data in
// Katalyst's program, which others cannot compute.
type checkpoint struct {
	Data struct {
		PodResourceEntries []checkpointEntry
	}
}

type checkpointEntry struct {
	PodUID, ContainerName, ResourceName string
	AllocationInfo                      string // JSON of a ResourceAllocationInfo
}

// migrate takes over what plugins allocated before a node came to this agent, so that containers
// keep it while plugins are away. A file that cannot be read changes nothing: plugins say
// themselves what they allocated.
func (m *Manager) migrate() {
	if m.o.Directory == "" {
		return
	}
	path := filepath.Join(m.o.Directory, checkpointName)
	pods, skipped, err := readCheckpoint(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		m.o.Log.Warn("the checkpoint of an earlier manager of resource plugins cannot be read; plugins are asked what they allocated", logkey.File, path, logkey.Err, err)
	default:
		m.pods = pods
		m.o.Log.Info("took over what resource plugins allocated", logkey.File, path, logkey.Pods, len(pods), logkey.Text, fmt.Sprintf("%d entries are not valid", skipped))
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
		return nil, 0, errors.New("it is no regular file")
	}
	if err := trust.Writers(info); err != nil {
		return nil, 0, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxCheckpoint+1))
	if err != nil {
		return nil, 0, err
	}
	if len(data) > maxCheckpoint {
		return nil, 0, fmt.Errorf("it has more than %d bytes", maxCheckpoint)
	}
	return parseCheckpoint(data)
}

// parseCheckpoint converts the text of a checkpoint.
func parseCheckpoint(data []byte) (pods map[string]*pod, skipped int, err error) {
	var c checkpoint
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, 0, err
	}
	if n := len(c.Data.PodResourceEntries); n > maxEntriesRead {
		return nil, 0, fmt.Errorf("it has %d entries: at most %d are read", n, maxEntriesRead)
	}
	pods = map[string]*pod{}
	for _, e := range c.Data.PodResourceEntries {
		var info api.ResourceAllocationInfo
		if !isName(e.ResourceName) || !isUID(e.PodUID) || !isUID(e.ContainerName) || (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(e.AllocationInfo), &info) != nil {
			skipped++
			continue
		}
		p := pods[e.PodUID]
		if p == nil {
			p = newPod()
			p.migrated, pods[e.PodUID] = true, p
		}
		if p.answers[e.ContainerName] == nil {
			p.answers[e.ContainerName] = map[string]stored{}
		}
		p.answers[e.ContainerName][e.ResourceName] = stored{
			request: &api.ResourceRequest{PodUid: e.PodUID, ContainerName: e.ContainerName, ResourceName: e.ResourceName},
			answer:  &api.ResourceAllocation{ResourceAllocation: map[string]*api.ResourceAllocationInfo{e.ResourceName: &info}},
			adopted: true,
		}
	}
	if skipped > 0 && len(pods) == 0 {
		return nil, skipped, fmt.Errorf("none of its %d entries is valid", skipped)
	}
	return pods, skipped, nil
}

// isUID reports whether a text can be the UID of a pod or the name of a container.
func isUID(s string) bool {
	const longest = 253
	return s != "" && len(s) <= longest && short(s) == s
}
