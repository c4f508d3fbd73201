package ociedit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// ErrNotRead means that no wrapper has read the decision.
var ErrNotRead = errors.New("no OCI runtime wrapper has read the decision")

// Note stores the result for a decision: nil if the bundle has the changes.
func Note(dir, id string, result error) error {
	if err := CheckID(id); err != nil {
		return err
	}
	text := ""
	if result != nil {
		text = result.Error()
	}
	if err := replace(dir, id+resultEnd, []byte(text), 0o600); err != nil {
		return fmt.Errorf("note the result for container %s: %w", id, err)
	}
	return nil
}

// Applied returns the result for a container: nil if the bundle has the changes, or if there is no decision;
// ErrNotRead; or the wrapper's error.
func Applied(dir, id string) error {
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
	if _, err := root.Lstat(id + decisionEnd); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	text, err := readFile(root, id+resultEnd)
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
