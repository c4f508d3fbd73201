package ociedit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// ErrNotRead means that no OCI runtime wrapper (trimtab-oci) has read the decision about a container.
var ErrNotRead = errors.New("no OCI runtime wrapper has read the decision")

// WriteResult stores the result of applying the decision about a container. The result is nil if the bundle now has the
// changes of the decision. Otherwise it is the error.
func WriteResult(dir, id string, result error) error {
	if err := CheckID(id); err != nil {
		return err
	}
	text := ""
	if result != nil {
		text = result.Error()
	}
	if err := replaceFile(dir, id+resultSuffix, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the result for container %s: %w", id, err)
	}
	return nil
}

// ReadResult returns the result of applying the decision about a container. The result is nil if the bundle has the
// changes of the decision, or if there is no decision. It is ErrNotRead if no wrapper has read the decision. Otherwise
// it is the error of the wrapper.
func ReadResult(dir, id string) error {
	if err := CheckID(id); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("open the directory of decisions: %w", err)
	}
	defer root.Close()
	if _, err := root.Lstat(id + decisionSuffix); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	text, err := readFile(root, id+resultSuffix)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ErrNotRead
	case err != nil:
		return err
	case len(text) > 0:
		return errors.New(string(text))
	}
	return nil
}
