package ociedit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/trimtab/trimtab/internal/trust"
)

// DefaultDirectory is the default directory of decision files. It is on a tmpfs, so a restart of the machine removes
// all decision files.
const DefaultDirectory = "/run/trimtab/oci"

// The suffixes of the file with a decision, and of the file with the result of applying the decision.
const (
	decisionSuffix = ".json"
	resultSuffix   = ".result"
)

// maxFile limits the size of a decision file, in bytes.
const maxFile = 1 << 20

// WriteDecision stores a decision in a directory, and creates the directory if there is none. A reader sees either the
// whole earlier file or the whole new file.
func WriteDecision(dir string, d Decision) error {
	d.Version = DecisionVersion
	if err := d.Check(); err != nil {
		return fmt.Errorf("write the decision of container %s: %w", d.ID, err)
	}
	text, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("write the decision of container %s: %w", d.ID, err)
	}
	if len(text) > maxFile {
		return fmt.Errorf("write the decision of container %s: the decision has %d bytes, more than the limit of %d", d.ID, len(text), maxFile)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("write the decision of container %s: %w", d.ID, err)
	}
	if err := replaceFile(dir, d.ID+decisionSuffix, text, 0o600); err != nil {
		return fmt.Errorf("write the decision of container %s: %w", d.ID, err)
	}
	return nil
}

// RemoveDecision deletes the files with the decision about a container and with the result of applying the decision. A
// missing file is no error.
func RemoveDecision(dir, id string) error {
	if err := CheckID(id); err != nil {
		return err
	}
	for _, end := range []string{decisionSuffix, resultSuffix} {
		if err := os.Remove(filepath.Join(dir, id+end)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the decision of container %s: %w", id, err)
		}
	}
	return nil
}

// DecisionIDs returns the ids of the containers for which the directory has a decision.
func DecisionIDs(dir string) (ids []string, err error) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list decisions: %w", err)
	}
	for _, e := range all {
		if id, is := strings.CutSuffix(e.Name(), decisionSuffix); is && CheckID(id) == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// ReadDecision returns the decision about a container. The error wraps fs.ErrNotExist if there is no file. ReadDecision
// returns an error if the file is a link. It also returns an error if a user other than root and the user of the
// process can write the file or the directory.
func ReadDecision(dir, id string) (d Decision, err error) {
	if err := CheckID(id); err != nil {
		return d, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return d, fmt.Errorf("open the directory of decisions: %w", err)
	}
	defer root.Close()
	if info, err := root.Stat("."); err != nil {
		return d, fmt.Errorf("read %s: %w", dir, err)
	} else if err := trust.CheckWriters(info); err != nil {
		return d, fmt.Errorf("directory %s: %w", dir, err)
	}
	text, err := readFile(root, id+decisionSuffix)
	if err != nil {
		return d, err
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return d, fmt.Errorf("read the decision of container %s: %w", id, err)
	}
	if err := d.Check(); err != nil {
		return d, fmt.Errorf("read the decision of container %s: %w", id, err)
	}
	if d.ID != id {
		return d, fmt.Errorf("the decision of container %s names container %s", id, d.ID)
	}
	return d, nil
}

// openRegular opens a regular file of a directory. It returns an error for a link. The check is necessary because
// os.Root follows links that stay inside the directory.
func openRegular(root *os.Root, name string) (f *os.File, info fs.FileInfo, err error) {
	named, err := root.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	if !named.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s is not a regular file", name)
	}
	if f, err = root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0); err != nil {
		return nil, nil, err
	}
	if info, err = f.Stat(); err == nil && !os.SameFile(named, info) {
		err = fmt.Errorf("%s was replaced while it was opened", name)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// readFile reads a regular file of a directory. It returns an error if a user other than root and the user of the
// process can write the file.
func readFile(root *os.Root, name string) ([]byte, error) {
	f, info, err := openRegular(root, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := trust.CheckWriters(info); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", name, maxFile)
	}
	return text, err
}

// replaceFile writes a file of a directory. It writes a temporary file and renames it, so that a reader never sees a
// part of the file.
func replaceFile(dir, name string, text []byte, mode fs.FileMode) (err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return replaceFileIn(root, name, text, mode, -1, -1)
}

// replaceFileIn writes a file of the directory root. It writes a temporary file and renames it. If uid is not -1, it
// sets the owner and group of the new file to uid and gid.
func replaceFileIn(root *os.Root, name string, text []byte, mode fs.FileMode, uid, gid int) (err error) {
	temp := fmt.Sprintf(".%s.%d", name, os.Getpid())
	_ = root.Remove(temp) // an earlier process with this process id may have left the file
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, mode)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = root.Remove(temp)
		}
	}()
	_, err = f.Write(text)
	if err == nil && uid != -1 {
		err = f.Chown(uid, gid)
	}
	if err == nil {
		err = f.Chmod(mode)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return root.Rename(temp, name)
}
