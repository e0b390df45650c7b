"""Who makes a batch: inline and process workers, and the code that runs inside one."""
