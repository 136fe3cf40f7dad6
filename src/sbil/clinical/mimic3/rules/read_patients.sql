-- PATIENTS: when each patient was born (shifted, as all dates of MIMIC-III are).
SELECT DISTINCT
    try_cast(subject_id AS INTEGER) AS subject_id,
    try_cast(dob AS TIMESTAMP) AS dob
FROM source
WHERE try_cast(subject_id AS INTEGER) IS NOT NULL
