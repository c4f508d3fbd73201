package agent

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/statefile"
)

// keySize is the size, in bytes, of the key that signs container records.
const keySize = 32

// recordKey returns the key that signs container records: the annotations in which the agent stores a container's
// state. It reads the key from paths.key, or makes this file at the agent's first start. Without paths.key it makes a
// key for this process only.
func (s *stateFiles) recordKey() ([]byte, error) {
	if s.key != nil {
		return s.key, nil
	}
	key, err := s.readKey()
	s.key = key
	return key, err
}

// readKey reads the key that signs container records from paths.key. It makes this file if it does not exist. Without
// paths.key it returns a new key, and writes no file.
func (s *stateFiles) readKey() ([]byte, error) {
	file := s.paths.Key
	if file == "" {
		return newKey(), nil
	}
	dir, name := stateDirectory(s.makeFS, filepath.Dir(file)), filepath.Base(file)
	key, err := dir.ReadSecret(name)
	switch {
	case err == nil && len(key) == keySize:
		s.signingKey, s.hasEarlierKey = key, true
		return key, nil
	case err == nil:
		return nil, fmt.Errorf("read the record key %s (paths.key): the file has %d bytes, want %d: delete it, and the agent creates a new key (it then decides again about containers whose records are signed with the old key)",
			file, len(key), keySize)
	case errors.Is(err, statefile.ErrUntrusted):
		return nil, fmt.Errorf("read the record key (paths.key): %w; users who can read the file can sign records: delete it, and the agent creates a new key (it then decides again about containers whose records are signed with the old key), "+
			"or, if no other user has read it, change its owner to the agent's user and its mode to 0600", err)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("read the record key (paths.key): %w", err)
	}
	if err := dir.Prepare(); errors.Is(err, statefile.ErrUntrusted) {
		s.log.Warn("other users can replace the key that signs records", logkey.Key, "paths.key", logkey.Err, err)
	} else if err != nil {
		return nil, fmt.Errorf("make the record key (paths.key): %w", err)
	}
	key = newKey()
	if err := dir.Write(name, key); err != nil {
		return nil, fmt.Errorf("make the record key (paths.key): %w", err)
	}
	s.signingKey = key
	return key, nil
}

// newKey returns a random key of keySize bytes.
func newKey() []byte {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // crypto/rand never returns an error
	return key
}
