package nrihost

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/report/logkey"
)

// journal stores two kinds of facts on disk, so that they survive a crash of the agent: creations about which plugins
// have not answered yet, and pods whose stop was reported to plugins. The journal does not call fsync, because a crash
// of the machine also ends the containers.
type journal struct {
	dir string // "" means no journal
	log *slog.Logger
}

// journalEntry is one fact of the journal: a creation, or a stopped pod. Each entry is one file.
type journalEntry struct {
	Pod       string `json:"pod,omitempty"`       // the sandbox id, if the entry is the creation of a container
	Name      string `json:"name,omitempty"`      // the name of the container or pod
	Namespace string `json:"namespace,omitempty"` // the namespace of the pod, if the entry is the creation of a pod
	UID       string `json:"uid,omitempty"`       // the UID of the pod, if the entry is the creation of a pod
	Attempt   uint32 `json:"attempt,omitempty"`   // the field attempt of the CRI metadata
	Stopped   string `json:"stopped,omitempty"`   // the id of a sandbox whose stop was reported; all other fields are then empty
}

// journalSuffix is the suffix of the names of journal files.
const journalSuffix = ".json"

// encode returns the JSON text of an entry, and the path of the entry's file without the suffix.
func (j journal) encode(e journalEntry) (text []byte, path string, err error) {
	if text, err = json.Marshal(e); err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256(text)
	return text, filepath.Join(j.dir, hex.EncodeToString(sum[:12])), nil
}

// removeEntry removes an entry's file from the disk.
func (j journal) removeEntry(e journalEntry) {
	if _, path, err := j.encode(e); err == nil && j.dir != "" {
		_ = os.Remove(path + journalSuffix)
	}
}

// write stores an entry on disk. The returned function done removes the entry.
func (j journal) write(e journalEntry) (done func()) {
	if j.dir == "" {
		return func() {}
	}
	text, path, err := j.encode(e)
	if err == nil {
		err = os.MkdirAll(j.dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(path+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path+journalSuffix)
	}
	if err != nil {
		j.log.Warn("the agent cannot write the NRI host's journal; if the agent crashes now, a pod or container about which NRI plugins have not answered may stay in the runtime", logkey.Err, err)
	}
	return func() { j.removeEntry(e) }
}

// read reads all entries from the disk. For each entry, removers has the function that removes the entry.
func (j journal) read() (all []journalEntry, removers []func(), err error) {
	if j.dir == "" {
		return nil, nil, nil
	}
	files, err := os.ReadDir(j.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("read the NRI host's journal: %w", err)
	}
	for _, f := range files {
		at := filepath.Join(j.dir, f.Name())
		if !strings.HasSuffix(f.Name(), journalSuffix) {
			_ = os.Remove(at) // a file that was not written completely
			continue
		}
		text, err := os.ReadFile(at) //nolint:gosec // only root can write into the directory
		var e journalEntry
		if err != nil || json.Unmarshal(text, &e) != nil {
			j.log.Warn("the agent cannot read a file of the NRI host's journal and removes it", logkey.File, at, logkey.Err, err)
			_ = os.Remove(at)
			continue
		}
		all, removers = append(all, e), append(removers, func() { _ = os.Remove(at) })
	}
	return all, removers, nil
}

// removeUnanswered removes the pods and containers that an earlier agent created, and about which plugins had not
// answered when that agent ended. The journal lists these pods and containers.
func (h *Host) removeUnanswered(ctx context.Context) error {
	all, removers, err := h.journal.read()
	if err != nil {
		return err
	}
	for i, e := range all {
		switch {
		case e.Stopped != "":
			continue
		case e.Pod != "":
			err = h.removeUnansweredContainer(ctx, e)
		default:
			err = h.removeUnansweredPod(ctx, e)
		}
		if err != nil {
			return fmt.Errorf("remove a pod or container from the runtime, because NRI plugins have not answered about its creation: %w", err)
		}
		removers[i]()
	}
	return nil
}

// removeUnansweredContainer removes the container whose creation the entry is about, if the container exists and never
// ran.
func (h *Host) removeUnansweredContainer(ctx context.Context, e journalEntry) error {
	l, err := h.runtime.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{PodSandboxId: e.Pod}})
	if err != nil {
		return err
	}
	for _, c := range l.GetContainers() {
		if c.GetMetadata().GetName() == e.Name && c.GetMetadata().GetAttempt() == e.Attempt && c.GetState() == cri.ContainerState_CONTAINER_CREATED {
			h.log.Info("the agent removes a container from the runtime, because NRI plugins have not answered about its creation", logkey.Container, c.GetId())
			if _, err := h.runtime.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: c.GetId()}); err != nil && status.Code(err) != codes.NotFound {
				return err
			}
		}
	}
	return nil
}

// removeUnansweredPod removes the pod whose creation the entry is about, if the pod exists.
func (h *Host) removeUnansweredPod(ctx context.Context, e journalEntry) error {
	l, err := h.runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	for _, p := range l.GetItems() {
		m := p.GetMetadata()
		if m.GetName() == e.Name && m.GetNamespace() == e.Namespace && m.GetUid() == e.UID && m.GetAttempt() == e.Attempt {
			h.log.Info("the agent removes a pod from the runtime, because NRI plugins have not answered about its creation", logkey.Pod, e.Name, logkey.Namespace, e.Namespace)
			if err := h.removePod(ctx, p.GetId()); err != nil {
				return err
			}
		}
	}
	return nil
}

// removePod stops and removes a sandbox in the runtime.
func (h *Host) removePod(ctx context.Context, id string) error {
	if _, err := h.runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id}); err != nil && status.Code(err) != codes.NotFound {
		return err
	}
	_, err := h.runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id})
	if status.Code(err) == codes.NotFound {
		err = nil
	}
	return err
}
