PRAGMA application_id=1129272131;
PRAGMA user_version=1;
BEGIN TRANSACTION;
CREATE TABLE decisions (seq INTEGER PRIMARY KEY, decision TEXT NOT NULL);
INSERT INTO "decisions" VALUES(4,'{"memory":{"type":"Timetable","reserved":{},"wake_us":4611686018427387904}}');
INSERT INTO "decisions" VALUES(8,'{"starts":[{"job_id":1,"allocation":{"procs":1,"nodes":[{"node":"ant","tasks":1}]},"reason":{"why":"the reserved start has come","numbers":{"promised_us":98397064},"node":""}},{"job_id":2,"allocation":{"procs":1,"nodes":[{"node":"ant","tasks":1}]},"reason":{"why":"the reserved start has come","numbers":{"promised_us":98397064},"node":""}}],"memory":{"type":"Timetable","reserved":{},"wake_us":4611686018427387904}}');
INSERT INTO "decisions" VALUES(16,'{"starts":[{"job_id":3,"allocation":{"procs":3,"nodes":[{"node":"ant","tasks":3}]},"reason":{"why":"the reserved start has come","numbers":{"promised_us":312794391},"node":""}},{"job_id":4,"allocation":{"procs":3,"nodes":[{"node":"bee","tasks":3}]},"reason":{"why":"the reserved start has come","numbers":{"promised_us":312794391},"node":""}}],"memory":{"type":"Timetable","reserved":{},"wake_us":4611686018427387904}}');
INSERT INTO "decisions" VALUES(18,'{"starts":[{"job_id":5,"allocation":{"procs":1,"nodes":[{"node":"bee","tasks":1}]},"reason":{"why":"the reserved start has come","numbers":{"promised_us":322064747},"node":""}}],"memory":{"type":"Timetable","reserved":{},"wake_us":4611686018427387904}}');
CREATE TABLE events (seq INTEGER PRIMARY KEY, now_us INTEGER NOT NULL, event TEXT NOT NULL, note TEXT NOT NULL,
    checksum INTEGER NOT NULL);
INSERT INTO "events" VALUES(1,0,'{"type":"NodeJoined","node":{"name":"ant","procs":4,"memory_bytes":8589934592}}','',717179281);
INSERT INTO "events" VALUES(2,0,'{"type":"NodeJoined","node":{"name":"bee","procs":2,"memory_bytes":8589934592}}','',2967431999);
INSERT INTO "events" VALUES(3,0,'{"type":"NodeJoined","node":{"name":"cat","procs":2,"memory_bytes":8589934592}}','',1060241284);
INSERT INTO "events" VALUES(4,3795099,'{"type":"Boundary"}','the state was built again from the journal before this pass',2015266369);
INSERT INTO "events" VALUES(5,38654151,'{"type":"NodeLost","name":"cat"}','',3735303814);
INSERT INTO "events" VALUES(6,38654151,'{"type":"JobSubmitted","job":{"id":1,"procs":1,"estimate_us":373000000,"submit_us":38654151,"memory_bytes":268435456}}','',2871210837);
INSERT INTO "events" VALUES(7,64156521,'{"type":"JobSubmitted","job":{"id":2,"procs":1,"estimate_us":25000000,"submit_us":64156521,"memory_bytes":268435456}}','',3429744647);
INSERT INTO "events" VALUES(8,98397064,'{"type":"Boundary"}','',4270428387);
INSERT INTO "events" VALUES(9,168130095,'{"type":"JobSubmitted","job":{"id":3,"procs":3,"estimate_us":733000000,"submit_us":168130095,"memory_bytes":268435456}}','',1400234256);
INSERT INTO "events" VALUES(10,215414367,'{"type":"JobLaunched","job_id":2}','',2212042335);
INSERT INTO "events" VALUES(11,215414367,'{"type":"NodeJoined","node":{"name":"bee","procs":4,"memory_bytes":8589934592}}','',3209619017);
INSERT INTO "events" VALUES(12,230299852,'{"type":"LaunchFailed","job_id":1,"nodes":["ant"]}','ant refused: dust in it',2903291188);
INSERT INTO "events" VALUES(13,230299852,'{"type":"JobCancelled","job_id":2}','not wanted',853140184);
INSERT INTO "events" VALUES(14,268027698,'{"type":"JobSubmitted","job":{"id":4,"procs":3,"estimate_us":525000000,"submit_us":268027698,"memory_bytes":268435456}}','',549982442);
INSERT INTO "events" VALUES(15,273086054,'{"type":"JobCancelled","job_id":1}','not wanted',3508844268);
INSERT INTO "events" VALUES(16,312794391,'{"type":"Boundary"}','',26474094);
INSERT INTO "events" VALUES(17,319925781,'{"type":"JobSubmitted","job":{"id":5,"procs":1,"estimate_us":62000000,"submit_us":319925781,"memory_bytes":268435456}}','',2379000216);
INSERT INTO "events" VALUES(18,322064747,'{"type":"Boundary"}','',2790856235);
INSERT INTO "events" VALUES(19,362334080,'{"type":"JobLaunched","job_id":3}','',3365646292);
CREATE TABLE instructions (seq INTEGER, n INTEGER, instruction TEXT NOT NULL, PRIMARY KEY (seq, n)) WITHOUT ROWID;
INSERT INTO "instructions" VALUES(8,0,'{"type":"Start","job":{"id":1,"procs":1,"estimate_us":373000000,"submit_us":38654151,"memory_bytes":268435456},"allocation":{"procs":1,"nodes":[{"node":"ant","tasks":1}]},"limit_us":373000000,"cause":{"type":"Boundary"},"reason":{"why":"the reserved start has come","numbers":{"promised_us":98397064},"node":""}}');
INSERT INTO "instructions" VALUES(8,1,'{"type":"Start","job":{"id":2,"procs":1,"estimate_us":25000000,"submit_us":64156521,"memory_bytes":268435456},"allocation":{"procs":1,"nodes":[{"node":"ant","tasks":1}]},"limit_us":25000000,"cause":{"type":"Boundary"},"reason":{"why":"the reserved start has come","numbers":{"promised_us":98397064},"node":""}}');
INSERT INTO "instructions" VALUES(13,0,'{"type":"Kill","job_id":2,"cause":{"type":"JobCancelled","job_id":2},"reason":{"why":"cancelled by its user or an operator","numbers":{},"node":""}}');
INSERT INTO "instructions" VALUES(16,0,'{"type":"Start","job":{"id":3,"procs":3,"estimate_us":733000000,"submit_us":168130095,"memory_bytes":268435456},"allocation":{"procs":3,"nodes":[{"node":"ant","tasks":3}]},"limit_us":733000000,"cause":{"type":"Boundary"},"reason":{"why":"the reserved start has come","numbers":{"promised_us":312794391},"node":""}}');
INSERT INTO "instructions" VALUES(16,1,'{"type":"Start","job":{"id":4,"procs":3,"estimate_us":525000000,"submit_us":268027698,"memory_bytes":268435456},"allocation":{"procs":3,"nodes":[{"node":"bee","tasks":3}]},"limit_us":525000000,"cause":{"type":"Boundary"},"reason":{"why":"the reserved start has come","numbers":{"promised_us":312794391},"node":""}}');
INSERT INTO "instructions" VALUES(18,0,'{"type":"Start","job":{"id":5,"procs":1,"estimate_us":62000000,"submit_us":319925781,"memory_bytes":268435456},"allocation":{"procs":1,"nodes":[{"node":"bee","tasks":1}]},"limit_us":62000000,"cause":{"type":"Boundary"},"reason":{"why":"the reserved start has come","numbers":{"promised_us":322064747},"node":""}}');
CREATE TABLE jobs (job_id INTEGER PRIMARY KEY, user TEXT NOT NULL, submission TEXT NOT NULL,
    submitted_checksum INTEGER NOT NULL, state TEXT NOT NULL, ended INTEGER, record TEXT NOT NULL,
    checksum INTEGER NOT NULL);
INSERT INTO "jobs" VALUES(1,'bob','{"script":"#!/bin/sh\ntrue\n","arguments":[],"name":"","tasks":1,"time_limit_s":null,"memory_bytes":null,"kind":null,"coscheduling":null,"directory":"/tmp","environment":{},"output":null,"error":null,"umask":18,"hold":false,"requeue":false}',3097468392,'cancelled',10,'{"job":{"id":1,"procs":1,"estimate_us":373000000,"submit_us":38654151,"memory_bytes":268435456,"avoid":["ant"]},"submit_us":38654151,"end_us":273086054,"attempt":1,"facts":{}}',1262180684);
INSERT INTO "jobs" VALUES(2,'ann','{"script":"#!/bin/sh\ntrue\n","arguments":[],"name":"","tasks":1,"time_limit_s":null,"memory_bytes":null,"kind":null,"coscheduling":null,"directory":"/tmp","environment":{},"output":null,"error":null,"umask":18,"hold":false,"requeue":false}',1942302389,'ending',NULL,'{"job":{"id":2,"procs":1,"estimate_us":25000000,"submit_us":64156521,"memory_bytes":268435456},"submit_us":64156521,"start_us":215414367,"allocation":{"procs":1,"nodes":[{"node":"ant","tasks":1}]},"attempt":1,"limit_us":25000000,"facts":{"cpu_us":{"bee":5}}}',4082432325);
INSERT INTO "jobs" VALUES(3,'bob','{"script":"#!/bin/sh\ntrue\n","arguments":[],"name":"","tasks":1,"time_limit_s":null,"memory_bytes":null,"kind":null,"coscheduling":null,"directory":"/tmp","environment":{},"output":null,"error":null,"umask":18,"hold":false,"requeue":false}',3906288367,'running',NULL,'{"job":{"id":3,"procs":3,"estimate_us":733000000,"submit_us":168130095,"memory_bytes":268435456},"submit_us":168130095,"start_us":362334080,"allocation":{"procs":3,"nodes":[{"node":"ant","tasks":3}]},"attempt":1,"limit_us":733000000,"facts":{}}',3524811188);
INSERT INTO "jobs" VALUES(4,'bob','{"script":"#!/bin/sh\ntrue\n","arguments":[],"name":"","tasks":1,"time_limit_s":null,"memory_bytes":null,"kind":null,"coscheduling":null,"directory":"/tmp","environment":{},"output":null,"error":null,"umask":18,"hold":false,"requeue":false}',3717661509,'starting',NULL,'{"job":{"id":4,"procs":3,"estimate_us":525000000,"submit_us":268027698,"memory_bytes":268435456},"submit_us":268027698,"allocation":{"procs":3,"nodes":[{"node":"bee","tasks":3}]},"attempt":1,"limit_us":525000000,"facts":{}}',3793060361);
INSERT INTO "jobs" VALUES(5,'bob','{"script":"#!/bin/sh\ntrue\n","arguments":[],"name":"","tasks":1,"time_limit_s":null,"memory_bytes":null,"kind":null,"coscheduling":null,"directory":"/tmp","environment":{},"output":null,"error":null,"umask":18,"hold":false,"requeue":false}',403362790,'starting',NULL,'{"job":{"id":5,"procs":1,"estimate_us":62000000,"submit_us":319925781,"memory_bytes":268435456},"submit_us":319925781,"allocation":{"procs":1,"nodes":[{"node":"bee","tasks":1}]},"attempt":1,"limit_us":62000000,"facts":{}}',3144373150);
CREATE TABLE launches (job_id INTEGER, attempt INTEGER, launch TEXT NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (job_id, attempt)) WITHOUT ROWID;
INSERT INTO "launches" VALUES(2,1,'{"job_id":2,"attempt":1,"orders":2,"wanted":"launch","reached":{"ant":"started"}}',1034291095);
INSERT INTO "launches" VALUES(3,1,'{"job_id":3,"attempt":1,"orders":2,"wanted":"launch","reached":{"ant":"started"}}',3886012799);
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "meta" VALUES('cluster_id','9a6bda61acab4473a350d4bdcea8c32b');
CREATE TABLE runs (epoch INTEGER PRIMARY KEY, run TEXT NOT NULL);
INSERT INTO "runs" VALUES(1,'{"epoch":1,"instance":"f3c45e06899e41ec8eaff7c8a4f81aae","software":"test","anchor":{"core_us":0,"wall_us":1700000000000000,"boottime_us":77000000,"boot_id":"first boot"},"policy":"conservative","order":null,"rules":{"kill_at_limit":true,"release_at_limit":false,"max_nodes_per_job":null,"place":"first-fit","awaits_nodes":false,"launch_retries":1,"sharing":null,"mpl":null},"first_seq":1}');
CREATE TABLE snapshots (seq INTEGER PRIMARY KEY, now_us INTEGER NOT NULL, chain INTEGER NOT NULL, state BLOB NOT NULL,
    checksum INTEGER NOT NULL);
INSERT INTO "snapshots" VALUES(17,319925781,2379000216,X'7801D556C96EDB3014FC1581671D44EDF4B5B75EDB5B601894CCD86A2C3225A90686A17FEF50A22CC970922E4181E6103014399C37F3965C88542FBBCE904D42198BB3A2A42179D6AA36BB461ACB4F27B1271B1A4D9B56618F6CCA903C6A2176C3497CC7676E8C703021D15C3E619585E49BAAB078B8B805D95C4803ACD8430DB784B14DCBAD1818C45934FC84C47455DBD861334F699667315E6845ABF479579DAD7B27CECB34C9D22CEFC707073810B6826C8890FB461E08802CAE80C1C30CF3BD131D62DA860FAC4C5811E5A93BC6B57537B01BD32CA5699217C0EDA49C76932866ACCCC0DE836FB7FE9ED80F4467341C18152DE282A5090377E8A86A6E1B259D0CB36A52ED5D3050C8ADC09C4B0BDA961BA720EDB7884EFD101A4CDCDFA024B819415E8E088CD45CD6C2991454E7A0B126E88CD081D20197817A169A430000CAAEAD8406C40580FE2982E55ED4CDDE0710CF21D61C308EA93D3F3B569F55F5697A08687073375809849378B464938FCEF9DF88D7ECD4E32802F522F4E12A0D90275E06AC56695024C99D3CA07949B1CF9055EF25023C9A12E16AEC22151648732E2413CD65326CD70E2FCE4C16D328CDDEF418C1BDED7132787C6BAB3D8A400B58F903CE0E4104476E825AB562E5A6D3B06D8C77F04AF07593AF4742A4CE2F994C0136DB7915EFC64E14D12B766677CB1AE51BC545CED048DEB31312BE65E702E9AFED2C93E2B7DDAC84B3C457EC7FE6E655BB1B375164738F5A15671EDFA9CDC5E878CFCCB1D90E4DDABBB5A8CC05CE64254A70D9A31627EEA4EF97616C5874F7A1474D13E7E3A35995C495530FB2B7C58EC6CE51B35363F7AA4285B55065563296A4198B7B67C5D8A1AF77C714FBB3BB983A50C3DF45677CF55DB47265D0CAADEE848BA43E727970C3E9E2C7B1D3D54D2AD7F93F5E5237E9AC6E0E07A1D783E75F9A3A8AB378FF6BD30ACBAB932BF1A91FE333B8BEF0A7F1BF9634A7688A7944CB342E92B26051DAF73F01595AE1A9',309253309);
CREATE TABLE transitions (id INTEGER PRIMARY KEY, seq INTEGER NOT NULL, job_id INTEGER NOT NULL,
    now_us INTEGER NOT NULL, was TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, cause TEXT NOT NULL,
    note TEXT NOT NULL, checksum INTEGER NOT NULL);
INSERT INTO "transitions" VALUES(1,6,1,38654151,'','queued','{"why":"accepted: no pass has decided about it yet","numbers":{},"node":""}','JobSubmitted job 1','',2149474968);
INSERT INTO "transitions" VALUES(2,7,2,64156521,'','queued','{"why":"accepted: no pass has decided about it yet","numbers":{},"node":""}','JobSubmitted job 2','',318762509);
INSERT INTO "transitions" VALUES(3,8,1,98397064,'queued','starting','{"why":"the reserved start has come","numbers":{"promised_us":98397064},"node":""}','JobSubmitted job 2','',1641920893);
INSERT INTO "transitions" VALUES(4,8,2,98397064,'queued','starting','{"why":"the reserved start has come","numbers":{"promised_us":98397064},"node":""}','JobSubmitted job 2','',1805440034);
INSERT INTO "transitions" VALUES(5,9,3,168130095,'','queued','{"why":"accepted: no pass has decided about it yet","numbers":{},"node":""}','JobSubmitted job 3','',2535599965);
INSERT INTO "transitions" VALUES(6,10,2,215414367,'starting','running','null','JobLaunched job 2','',3671754589);
INSERT INTO "transitions" VALUES(7,12,1,230299852,'starting','queued','{"why":"its launch has failed before the script ran: it waits for other nodes","numbers":{"failed_launches":1,"launch_retries":1},"node":"ant"}','LaunchFailed job 1 on ant','ant refused: dust in it',2229713338);
INSERT INTO "transitions" VALUES(8,13,2,230299852,'running','ending','{"why":"cancelled by its user or an operator","numbers":{},"node":""}','JobCancelled job 2','not wanted',4171715900);
INSERT INTO "transitions" VALUES(9,14,4,268027698,'','queued','{"why":"accepted: no pass has decided about it yet","numbers":{},"node":""}','JobSubmitted job 4','',2979737654);
INSERT INTO "transitions" VALUES(10,15,1,273086054,'queued','cancelled','{"why":"cancelled by its user or an operator","numbers":{},"node":""}','JobCancelled job 1','not wanted',1216236047);
INSERT INTO "transitions" VALUES(11,16,3,312794391,'queued','starting','{"why":"the reserved start has come","numbers":{"promised_us":312794391},"node":""}','JobCancelled job 1','',1746554431);
INSERT INTO "transitions" VALUES(12,16,4,312794391,'queued','starting','{"why":"the reserved start has come","numbers":{"promised_us":312794391},"node":""}','JobCancelled job 1','',1908068436);
INSERT INTO "transitions" VALUES(13,17,5,319925781,'','queued','{"why":"accepted: no pass has decided about it yet","numbers":{},"node":""}','JobSubmitted job 5','',1780643070);
INSERT INTO "transitions" VALUES(14,18,5,322064747,'queued','starting','{"why":"the reserved start has come","numbers":{"promised_us":322064747},"node":""}','JobSubmitted job 5','',1166278817);
INSERT INTO "transitions" VALUES(15,19,3,362334080,'starting','running','null','JobLaunched job 3','',3760293925);
CREATE INDEX transitions_of_job ON transitions (job_id, id);
CREATE INDEX jobs_alive ON jobs (job_id) WHERE ended IS NULL;
CREATE UNIQUE INDEX jobs_ended ON jobs (ended) WHERE ended IS NOT NULL;
COMMIT;
