"""Record batches ↔ Arrow columns: compiled codec, compression, checksums, partitioners. No I/O."""
