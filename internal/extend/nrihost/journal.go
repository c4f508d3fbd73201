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
	Pod       string `json:"pod,omitempty"` // the sandbox, if the entry is a container
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	UID       string `json:"uid,omitempty"`
	Attempt   uint32 `json:"attempt,omitempty"`
	Stopped   string `json:"stopped,omitempty"` // the sandbox whose stop was reported; then all other fields are empty
}

const journalSuffix = ".json"

// encode returns the text of an entry, and the path of its file without the suffix.
func (j journal) encode(e journalEntry) (text []byte, at string, err error) {
	if text, err = json.Marshal(e); err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256(text)
	return text, filepath.Join(j.dir, hex.EncodeToString(sum[:12])), nil
}

// removeEntry removes an entry.
func (j journal) removeEntry(e journalEntry) {
	if _, at, err := j.encode(e); err == nil && j.dir != "" {
		_ = os.Remove(at + journalSuffix)
	}
}

// write stores an entry. The function done removes the entry.
func (j journal) write(e journalEntry) (done func()) {
	if j.dir == "" {
		return func() {}
	}
	text, at, err := j.encode(e)
	if err == nil {
		err = os.MkdirAll(j.dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(at+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(at+".new", at+journalSuffix)
	}
	if err != nil {
		j.log.Warn("the agent cannot write the NRI host's journal; if the agent crashes now, a container that plugins have not answered about may stay in the runtime", logkey.Err, err)
	}
	return func() { j.removeEntry(e) }
}

// read returns the entries. drops has, for each entry, the function that removes it.
func (j journal) read() (all []journalEntry, drops []func(), err error) {
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
		text, err := os.ReadFile(at) //nolint:gosec // in a directory of root
		var e journalEntry
		if err != nil || json.Unmarshal(text, &e) != nil {
			j.log.Warn("the agent cannot read a file of the NRI host's journal and removes it", logkey.File, at, logkey.Err, err)
			_ = os.Remove(at)
			continue
		}
		all, drops = append(all, e), append(drops, func() { _ = os.Remove(at) })
	}
	return all, drops, nil
}

// removeUnanswered removes pods and containers that an earlier agent created, if that agent ended before plugins
// answered about them.
func (h *Host) removeUnanswered(ctx context.Context) error {
	all, drops, err := h.journal.read()
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
			return fmt.Errorf("remove a container or pod of an earlier agent about which NRI plugins have not answered: %w", err)
		}
		drops[i]()
	}
	return nil
}

func (h *Host) removeUnansweredContainer(ctx context.Context, e journalEntry) error {
	l, err := h.runtime.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{PodSandboxId: e.Pod}})
	if err != nil {
		return err
	}
	for _, c := range l.GetContainers() {
		if c.GetMetadata().GetName() == e.Name && c.GetMetadata().GetAttempt() == e.Attempt && c.GetState() == cri.ContainerState_CONTAINER_CREATED {
			h.log.Info("the agent removes a container about which NRI plugins have not answered", logkey.Container, c.GetId())
			if _, err := h.runtime.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: c.GetId()}); err != nil && status.Code(err) != codes.NotFound {
				return err
			}
		}
	}
	return nil
}

func (h *Host) removeUnansweredPod(ctx context.Context, e journalEntry) error {
	l, err := h.runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	for _, p := range l.GetItems() {
		m := p.GetMetadata()
		if m.GetName() == e.Name && m.GetNamespace() == e.Namespace && m.GetUid() == e.UID && m.GetAttempt() == e.Attempt {
			h.log.Info("the agent removes a pod about which NRI plugins have not answered", logkey.Pod, e.Name, logkey.Namespace, e.Namespace)
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
