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

// keySize is the size of the secret that signs records, in bytes.
const keySize = 32

// recordKey reads the secret that signs records. At the first start it makes the secret. Without a file
// name the secret lasts as long as the process.
func (s *stateFiles) recordKey() ([]byte, error) {
	if s.key != nil {
		return s.key, nil
	}
	key, err := s.readKey()
	s.key = key
	return key, err
}

func (s *stateFiles) readKey() ([]byte, error) {
	file := s.paths.Key
	if file == "" {
		return newKey(), nil
	}
	dir, name := directory(s.disk, filepath.Dir(file)), filepath.Base(file)
	key, err := dir.ReadSecret(name)
	switch {
	case err == nil && len(key) == keySize:
		s.seal, s.hasEarlierKey = key, true
		return key, nil
	case err == nil:
		return nil, fmt.Errorf("record key %s (paths.key): %d bytes instead of %d; delete the file, and the agent creates a new key; it then decides again for containers whose records have the old key",
			file, len(key), keySize)
	case errors.Is(err, statefile.ErrUntrusted):
		return nil, fmt.Errorf("record key (paths.key): %w; a user who has read it can sign records: delete the file, and the agent creates a new key (it then decides again for containers whose records have the old key), "+
			"or, if no user has read it, change its owner to the agent's user and its mode to 0600", err)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("record key (paths.key): %w", err)
	}
	if err := dir.Prepare(); errors.Is(err, statefile.ErrUntrusted) {
		s.log.Warn("others can replace the key that signs records", logkey.Key, "paths.key", logkey.Err, err)
	} else if err != nil {
		return nil, fmt.Errorf("make the record key (paths.key): %w", err)
	}
	key = newKey()
	if err := dir.Write(name, key); err != nil {
		return nil, fmt.Errorf("make the record key (paths.key): %w", err)
	}
	s.seal = key
	return key, nil
}

func newKey() []byte {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // crypto/rand never returns an error
	return key
}
